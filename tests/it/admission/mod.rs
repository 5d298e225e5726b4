//! Admission: what users write is answered before it is stored, by the real API server that asks the webhook.

mod case;
mod certificates;
mod down;
mod fresh;
mod instances;
mod names;
mod platform;
mod robust;
mod rolling;
mod table;
