//! COPY FROM STDIN: the server waits for data.

use super::error::error;
use super::{ModelServer, World};
use crate::protocol::write;

/// A Query or an Execute that waits for copy data.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copy {
    pub(super) extended: bool,
    pub(super) rows: u32,
}

impl ModelServer {
    /// A frame that comes meanwhile.
    pub(super) fn copy_frame(&mut self, mut copy: Copy, kind: u8, world: &World) {
        let outcome = match kind {
            b'd' | b'H' | b'S' => {
                copy.rows += u32::from(kind == b'd');
                self.copy = Some(copy);
                return;
            }
            b'c' => self.guarded(|model| {
                write::command_complete(&mut model.out, &format!("COPY {}", copy.rows));
                Ok(())
            }),
            b'f' => self.guarded(|_| Err(error("57014", "COPY from stdin failed"))),
            _ => self.guarded(|_| Err(error("57014", "unexpected message during COPY"))),
        };
        match outcome {
            Err(error) => self.fail(&error, copy.extended),
            Ok(()) if !copy.extended => self.run_queue(world),
            Ok(()) => {}
        }
    }
}
