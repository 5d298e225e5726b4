//! What a change needs, what the ConfigMap may say about it, and every mistake that can be made in one.

mod built_in;
mod comparing;
mod written;
