//! A definition of six objects, as Numaflow's own is, in any version.

const DEFINITION: &str = include_str!("definition.yaml");

/// Image of a version.
pub fn image(version: &str) -> String {
    format!("registry.example/numaflow:v{version}")
}

/// Objects of a version as text, for every instance.
pub fn text(version: &str) -> String {
    DEFINITION.replace("__IMAGE__", &image(version))
}

/// The value of a key that defines these versions.
pub fn entries(versions: &[String]) -> String {
    let entry = |version: &String| {
        let indented: String = text(version).lines().map(|line| format!("      {line}\n")).collect();
        format!("  - version: \"{version}\"\n    fullSpec: |\n{indented}")
    };
    format!("controllerDefinitions:\n{}", versions.iter().map(entry).collect::<String>())
}
