//! Two clients play their scripts, in a random order.

use super::script::Event;
use super::server::World;
use forebay::Rng;

/// What each of two clients does.
pub(super) type Scripts = [Vec<Event>; 2];

/// Sessions with their backends, on which clients play.
pub(super) trait Harness {
    type Client;

    fn rng(&mut self) -> &mut Rng;

    fn world(&mut self) -> &mut World;

    /// The client sends these frames. It need not wait for what is answered.
    fn send(&mut self, client: &mut Self::Client, frames: &[u8]) -> Result<(), String>;

    /// The client has sent them.
    fn sent(&mut self, client: &mut Self::Client) -> Result<(), String>;

    /// Lets happen what is under way, and looks at what the client saw.
    fn check(&mut self, client: &mut Self::Client) -> Result<(), String>;
}

pub(super) fn play<H: Harness>(
    harness: &mut H,
    clients: &mut [H::Client; 2],
    scripts: &Scripts,
) -> Result<(), String> {
    let mut rest = scripts.each_ref().map(|events| events.iter());
    while rest.iter().any(|events| events.len() > 0) {
        let mut who = usize::try_from(harness.rng().below(2)).unwrap_or(0);
        if rest[who].len() == 0 {
            who = 1 - who;
        }
        match rest[who].next() {
            Some(Event::Alter(column_type)) => {
                for client in clients.iter_mut() {
                    harness.check(client)?;
                }
                harness.world().column_type = *column_type;
            }
            Some(Event::Send { frames, .. }) => {
                harness.send(&mut clients[who], frames)?;
                harness.sent(&mut clients[who])?;
            }
            None => {}
        }
    }
    Ok(())
}
