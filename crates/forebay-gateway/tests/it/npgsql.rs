//! What Npgsql, the driver of .NET, sends: it cannot be installed here, so its messages are built as its protocol layer builds them.
//!
//! What is peculiar to it: it asks for encryption in both ways, loads the types of the server with one Query, asks for binary values, prepares by
//! the names `_p1`, `_p2`, and writes the reset of a pooled connection, or the begin of a transaction, in front of the next command.

use bytes::{Bytes, BytesMut};
use dsql_local::EngineKind;
use postgres_protocol::IsNull;
use postgres_protocol::message::frontend;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::world::{PATIENCE, Plan, World};

const INT4: u32 = 23;

/// The first thing that it asks a server: its version, its types, the columns of composite types, the labels of enumerations.
const LOAD_TYPES: &str = "SELECT version();

SELECT n.nspname, t.oid, t.typname, t.typtype, t.typnotnull, e.oid AS elemtypoid
FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_type e ON e.oid = t.typelem AND t.typtype = 'b' AND t.typelem <> 0
WHERE t.typtype IN ('b', 'r', 'm', 'e', 'd') AND t.typname <> 'unknown' ORDER BY t.oid;

-- The columns of composite types
SELECT t.oid, a.attname, a.atttypid FROM pg_type t JOIN pg_class c ON c.oid = t.typrelid JOIN pg_attribute a ON a.attrelid = t.typrelid
WHERE t.typtype = 'c' AND c.relkind = 'c' AND a.attnum > 0 AND NOT a.attisdropped ORDER BY t.oid, a.attnum;

-- The labels of enumerations
SELECT t.oid, l.enumlabel FROM pg_enum l JOIN pg_type t ON t.oid = l.enumtypid ORDER BY t.oid, l.enumsortorder;";

/// The reset of a connection that has prepared statements to keep.
const RESET_AND_KEEP: &str = "SET SESSION AUTHORIZATION DEFAULT;RESET ALL;CLOSE ALL;UNLISTEN *;SELECT pg_advisory_unlock_all();DISCARD SEQUENCES;DISCARD TEMP";

/// A message of the server.
struct Answer {
    kind: u8,
    body: Bytes,
}

impl Answer {
    /// The kind, and what tells one from another of this kind.
    fn brief(&self) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        match self.kind {
            b'C' => format!("C {}", text(&self.body)),
            b'Z' => format!("Z {}", text(&self.body)),
            b'E' => {
                let code = self.body.split(|&byte| byte == 0).find_map(|field| field.strip_prefix(b"C"));
                format!("E {}", text(code.unwrap_or_default()))
            }
            kind => char::from(kind).to_string(),
        }
    }
}

/// A connection of Npgsql.
struct Connector {
    socket: TcpStream,
    unsent: BytesMut,
}

impl Connector {
    async fn open(world: &World) -> Self {
        let mut socket = TcpStream::connect(world.gateway.addresses()[0]).await.unwrap();
        // GSS first, then TLS: it goes on without where the server has none.
        for request in [80_877_104_u32, 80_877_103] {
            socket.write_u32(8).await.unwrap();
            socket.write_u32(request).await.unwrap();
            assert_eq!(socket.read_u8().await.unwrap(), b'N');
        }
        let mut connector = Self { socket, unsent: BytesMut::new() };
        let parameters = [
            ("user", "app"),
            ("client_encoding", "UTF8"),
            ("database", "postgres"),
            ("application_name", "dotnet"),
            ("TimeZone", "Europe/Berlin"),
        ];
        frontend::startup_message(parameters, &mut connector.unsent).unwrap();
        let answers = connector.answers().await;
        let told = |name: &str, value: &str| {
            let pair = [name, "\0", value, "\0"].concat();
            answers.iter().any(|answer| answer.kind == b'S' && answer.body == pair.as_bytes())
        };
        assert!(told("application_name", "dotnet") && told("TimeZone", "Europe/Berlin"));
        connector.query(LOAD_TYPES);
        let answers = connector.answers().await;
        let rows = answers.iter().filter(|answer| answer.kind == b'D').count();
        assert!(rows > 100, "{rows} rows");
        let others: Vec<_> = answers.iter().map(Answer::brief).filter(|answer| *answer != "D").collect();
        assert_eq!(others.iter().filter(|answer| *answer == "T").count(), 4, "{others:?}");
        assert_eq!(others.last().unwrap(), "Z I");
        connector
    }

    fn query(&mut self, text: &str) {
        frontend::query(text, &mut self.unsent).unwrap();
    }

    /// A statement without a name, with a number for it.
    fn command(&mut self, text: &str, value: i32) {
        frontend::parse("", text, [INT4], &mut self.unsent).unwrap();
        self.bind("", value);
        frontend::describe(b'P', "", &mut self.unsent).unwrap();
        frontend::execute("", 0, &mut self.unsent).unwrap();
    }

    fn bind(&mut self, statement: &str, value: i32) {
        let write = |value: i32, out: &mut BytesMut| {
            out.extend_from_slice(&value.to_be_bytes());
            Ok(IsNull::No)
        };
        let bound = frontend::bind("", statement, [1], [value], write, [1], &mut self.unsent);
        assert!(bound.is_ok());
    }

    /// A statement that is prepared under this name. Its columns are known.
    fn execute(&mut self, statement: &str, value: i32) {
        self.bind(statement, value);
        frontend::execute("", 0, &mut self.unsent).unwrap();
    }

    fn sync(&mut self) {
        frontend::sync(&mut self.unsent);
    }

    /// Sends all at once, and reads up to ReadyForQuery.
    async fn answers(&mut self) -> Vec<Answer> {
        let unsent = self.unsent.split();
        self.socket.write_all(&unsent).await.unwrap();
        let mut answers = Vec::new();
        loop {
            let read = async {
                let kind = self.socket.read_u8().await?;
                let mut body = vec![0; self.socket.read_u32().await? as usize - 4];
                self.socket.read_exact(&mut body).await?;
                std::io::Result::Ok(Answer { kind, body: body.into() })
            };
            let answer = timeout(PATIENCE, read).await.unwrap().unwrap();
            let is_last = answer.kind == b'Z';
            answers.push(answer);
            if is_last {
                return answers;
            }
        }
    }

    /// The same in brief. ParameterStatus may come at any time.
    async fn brief(&mut self) -> Vec<String> {
        let answers = self.answers().await;
        answers.iter().filter(|answer| answer.kind != b'S').map(Answer::brief).collect()
    }

    /// The text that a statement without parameters returns.
    async fn show(&mut self, name: &str) -> String {
        self.query(&format!("SHOW {name}"));
        let answers = self.answers().await;
        let row = answers.iter().find(|answer| answer.kind == b'D').unwrap();
        String::from_utf8(row.body[6..].to_vec()).unwrap()
    }
}

#[tokio::test]
async fn commands_transactions_and_resets() {
    let world = Plan { engine: EngineKind::Postgres, ..Plan::default() }.start().await;
    let mut npgsql = Connector::open(&world).await;
    npgsql.query("CREATE TABLE visits (id int PRIMARY KEY)");
    assert_eq!(npgsql.brief().await, ["C CREATE TABLE", "Z I"]);
    for round in 0..3 {
        npgsql.command("SELECT $1 + 1", round);
        npgsql.sync();
        assert_eq!(npgsql.brief().await, ["1", "2", "T", "D", "C SELECT 1", "Z I"]);
        world.cut().await;

        // Prepare, once for the first borrower of each round.
        frontend::parse("_p1", "SELECT $1 + 10", [INT4], &mut npgsql.unsent).unwrap();
        frontend::describe(b'S', "_p1", &mut npgsql.unsent).unwrap();
        npgsql.sync();
        assert_eq!(npgsql.brief().await, ["1", "t", "T", "Z I"]);
        npgsql.query("SET application_name = 'changed'; SET TimeZone = 'Asia/Tokyo'");
        assert_eq!(npgsql.brief().await, ["C SET", "C SET", "Z I"]);
        world.cut().await;

        // The next borrower: the reset stands in front of its first command, in the same packet.
        npgsql.query(RESET_AND_KEEP);
        npgsql.execute("_p1", round);
        npgsql.sync();
        let reset = ["C SET", "C RESET", "C CLOSE CURSOR ALL", "C UNLISTEN", "T", "D", "C SELECT 1"];
        let discarded = ["C DISCARD SEQUENCES", "C DISCARD TEMP", "Z I"];
        assert_eq!(npgsql.brief().await, [&reset[..], &discarded].concat());
        let command = npgsql.answers().await;
        assert_eq!(command[1].body[6..], (round + 10).to_be_bytes());
        assert_eq!(npgsql.show("application_name").await, "dotnet");
        assert_eq!(npgsql.show("TimeZone").await, "Europe/Berlin");
        world.cut().await;

        // A transaction begins in front of its first command, too. What follows an error in a batch is skipped.
        npgsql.query("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ");
        npgsql.command("INSERT INTO visits VALUES ($1)", round);
        npgsql.command("SELECT 1 / $1", 0);
        npgsql.command("INSERT INTO visits VALUES ($1)", round + 100);
        npgsql.sync();
        assert_eq!(npgsql.brief().await, ["C BEGIN", "Z T"]);
        assert_eq!(npgsql.brief().await, ["1", "2", "n", "C INSERT 0 1", "1", "2", "T", "E 22012", "Z E"]);
        npgsql.query("ROLLBACK");
        assert_eq!(npgsql.brief().await, ["C ROLLBACK", "Z I"]);
        npgsql.query("BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ");
        npgsql.command("INSERT INTO visits VALUES ($1)", round);
        npgsql.sync();
        assert_eq!(npgsql.brief().await, ["C BEGIN", "Z T"]);
        assert_eq!(npgsql.brief().await, ["1", "2", "n", "C INSERT 0 1", "Z T"]);
        npgsql.query("COMMIT");
        assert_eq!(npgsql.brief().await, ["C COMMIT", "Z I"]);
        world.cut().await;

        // A borrower with nothing to keep: the reset is DISCARD ALL, again in front of a command.
        npgsql.query("DISCARD ALL");
        npgsql.command("SELECT count(*) FROM visits WHERE id <= $1", round);
        npgsql.sync();
        assert_eq!(npgsql.brief().await, ["C DISCARD ALL", "Z I"]);
        let command = npgsql.answers().await;
        assert_eq!(command[3].body[6..], i64::from(round + 1).to_be_bytes());
        npgsql.execute("_p1", round);
        npgsql.sync();
        assert_eq!(npgsql.brief().await, ["E 26000", "Z I"]);
    }
}
