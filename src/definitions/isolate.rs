//! Rendering in isolation: the objects of a definition under an identity of their own, beside production and without
//! any way to touch it.
//!
//! ```text
//! render(id) ─▶ leave out what reaches beyond ─▶ may it be? ─▶ withdraw ─▶ names, references ─▶ labels, selectors
//! ```
//!
//! Every step either makes sure of something or says why it cannot; nothing is left to luck.

mod allowed;
mod footprint;
mod mentions;
mod naming;
mod separate;
mod withdraw;

use self::allowed::Treatment;
pub use self::footprint::Footprint;
use super::{
    definition::Definition,
    kinds::PermittedKinds,
    objects::Object,
    references,
    render::{Rendered, render},
    template::Instance,
};

/// Why a definition cannot be rendered in isolation: a sentence for users that names the object and the field and says
/// what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotIsolated(pub String);

/// Renders `definition` in isolation under the instance ID `id` (like `x-0a1b2c3d`), so that the result can stand beside
/// `production`: everything that production occupies in the namespace, with the production rendering of this very
/// definition.
///
/// No object of the result is one of production; no selector of production matches its pods, and none of its selectors
/// matches pods of production; what it refers to is its own, or belongs to nobody. Cluster-scoped objects, Ingresses,
/// autoscalers and disruption budgets are left out, and nothing of it can be reached from outside of the cluster. Its
/// objects are in the order of application, and `hash` is that of the definition rendered for `id`.
///
/// # Errors
/// What stands in the way. A definition that says `isolated: true` is trusted to keep to its own instance; everything
/// that can be seen from here has to hold for it as well.
pub fn isolate(
    definition: &Definition,
    id: &str,
    permitted: &PermittedKinds,
    production: &Footprint,
) -> Result<Rendered, NotIsolated> {
    if definition.isolated == Some(false) {
        return Err(NotIsolated("the definition says isolated: false".to_owned()));
    }
    let Rendered { objects, hash } =
        render(definition, &Instance::production(id), permitted).map_err(|error| NotIsolated(error.to_string()))?;
    let (left_out, mut objects): (Vec<Object>, Vec<Object>) =
        objects.into_iter().partition(|object| allowed::treatment(&object.key) == Treatment::LeftOut);
    if definition.isolated.is_none() {
        allowed::check(&definition.version, id, &objects, &left_out)?;
    }
    nothing_left_out_is_missed(&objects, &left_out)?;
    for object in &mut objects {
        withdraw::withdraw(object);
    }
    naming::rename(&mut objects, id, production)?;
    separate::separate(&mut objects, id, production)?;
    Ok(Rendered { objects, hash })
}

/// Checks that no object refers to one that was left out.
fn nothing_left_out_is_missed(objects: &[Object], left_out: &[Object]) -> Result<(), NotIsolated> {
    for object in objects {
        for reference in references::references(object) {
            if left_out.iter().any(|other| other.key.is_of(reference.to) && other.key.name == reference.name) {
                return Err(NotIsolated(format!(
                    "{}: {} leads to {} of this definition, which an isolated copy does not have; take that out of \
                     the definition (it may be installed apart), or say isolated: false",
                    object.key,
                    reference.field(),
                    reference.target()
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
