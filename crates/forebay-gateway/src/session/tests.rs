//! What happens when something goes wrong, scene by scene.

mod cancel;
mod chain;
mod conflict;
mod copy;
mod drain;
mod frames;
mod growth;
mod habits;
mod limits;
mod lost;
mod role;
mod scene;
mod settings;
mod statements;
mod unsure;
