//! What depends on a controller. Pure.

/// Numaflow objects whose finalizers or data need a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dependants {
    /// Kinds that cannot be listed: an unreadable answer is not an empty one.
    pub unlisted: Vec<String>,
    /// Objects as `Kind/name`, with their instance.
    pub objects: Vec<Dependant>,
}

/// One Numaflow object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependant {
    /// Kind.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Instance that manages it; empty for the one without a name.
    pub instance: String,
}

impl Dependants {
    /// Names of the objects of an instance, as `Kind/name`.
    pub fn of_instance<'a>(&'a self, instance: &'a str) -> impl Iterator<Item = &'a Dependant> {
        self.objects.iter().filter(move |d| d.instance == instance)
    }
}
