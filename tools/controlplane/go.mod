// The local control plane for make up, the tests, the demo and the benchmark; the standard library is all it needs.
module numaplane.numaproj.io/tools/controlplane

go 1.26.0
