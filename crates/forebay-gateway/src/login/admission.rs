//! How many clients there are, and how many there may be.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use super::peer::Peer;
use crate::users::User;

/// How many clients there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Clients that are logged in.
    pub clients: usize,
    /// Of them, those of one address, or of one /64 of IPv6. Clients of the Unix socket and of loopback addresses are not counted.
    pub clients_per_address: Option<usize>,
    /// Clients that are logging in.
    pub logins: usize,
    /// Of them, those of one address, or of one /64 of IPv6.
    pub logins_per_address: Option<usize>,
}

/// Which limit is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Crowd {
    /// Too many clients are logging in: `max_logins`.
    #[error("max_logins is reached")]
    Logins,
    /// Too many clients of this address are logging in: `max_logins_per_address`.
    #[error("max_logins_per_address is reached")]
    LoginsOfAddress,
    /// Too many cancel requests are under way to peers, or from them. They are counted by themselves, each way up to the limits of logins.
    #[error("as many cancel requests as max_logins and max_logins_per_address allow are under way")]
    CancelRequests,
    /// Too many clients are logged in: `max_clients`.
    #[error("max_clients is reached")]
    Clients,
    /// Too many clients of this user: `max_clients` of the user, or `max_clients_per_user`.
    #[error("max_clients of the user is reached")]
    ClientsOfUser,
    /// Too many clients of this address: `max_clients_per_address`.
    #[error("max_clients_per_address is reached")]
    ClientsOfAddress,
}

/// Counts clients. What is counted is given back by guards.
#[derive(Debug, Default)]
pub struct Admissions(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// By what they wait for, in the order of [`Waiting`].
    waiting: [Waiters; 4],
    clients: usize,
    clients_by_address: BTreeMap<IpAddr, usize>,
    clients_by_user: BTreeMap<String, usize>,
}

/// What somebody who is no client yet waits for. Each is counted by itself: whoever holds up one does not hold up the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// A login, or what turns out to be something else.
    Login,
    /// A peer, to which a cancel request is passed on.
    Peer,
    /// A cancel request that a peer passes on to be heard.
    Hearing,
    /// To be told that there is no place.
    Refusal,
}

/// How many may wait to be told that there is no place, in all and of one address. The others are told at once, when few clients listen.
const REFUSALS: (usize, usize) = (200, 20);

#[derive(Debug, Default)]
struct Waiters {
    count: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

/// The place of somebody who is no client yet, until it is dropped.
#[derive(Debug)]
pub(super) struct LoginSlot {
    admissions: Arc<Admissions>,
    waiting: Waiting,
    /// If clients of it are counted.
    address: Option<IpAddr>,
}

/// The place of a client that is logged in, until it is dropped. Keep it as long as the client is connected.
#[derive(Debug)]
pub struct ClientSlot {
    admissions: Arc<Admissions>,
    address: Option<IpAddr>,
    user: Arc<User>,
}

impl Admissions {
    /// How many clients are logged in.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.0.lock().clients
    }

    /// How many clients are logging in.
    #[must_use]
    pub fn logins(&self) -> usize {
        self.0.lock().waiting[Waiting::Login as usize].count
    }

    /// How many clients of this user are logged in.
    #[must_use]
    pub fn clients_of(&self, user: &str) -> usize {
        self.0.lock().clients_by_user.get(user).copied().unwrap_or(0)
    }

    pub(super) fn begin(self: &Arc<Self>, peer: &Peer, limits: &ClientLimits) -> Result<LoginSlot, Crowd> {
        self.wait(Waiting::Login, counted(peer), limits)
    }

    /// There is no place for it, but it may say first what it wants. None if too many do.
    pub(super) fn refuse(self: &Arc<Self>, peer: &Peer, limits: &ClientLimits) -> Option<LoginSlot> {
        let (logins, of_address) = REFUSALS;
        let limits = ClientLimits { logins, logins_per_address: Some(of_address), ..*limits };
        self.wait(Waiting::Refusal, counted(peer), &limits).ok()
    }

    /// A peer connects, or somebody who says so.
    pub(super) fn hear(self: &Arc<Self>, peer: &Peer, limits: &ClientLimits) -> Result<LoginSlot, Crowd> {
        self.wait(Waiting::Hearing, counted(peer), limits)
    }

    fn wait(
        self: &Arc<Self>,
        waiting: Waiting,
        address: Option<IpAddr>,
        limits: &ClientLimits,
    ) -> Result<LoginSlot, Crowd> {
        let mut counts = self.0.lock();
        let waiters = &mut counts.waiting[waiting as usize];
        let own = address.and_then(|address| waiters.by_address.get(&address)).copied().unwrap_or(0);
        let crowd = |crowd| match waiting {
            Waiting::Login | Waiting::Refusal => crowd,
            Waiting::Peer | Waiting::Hearing => Crowd::CancelRequests,
        };
        if waiters.count >= limits.logins {
            return Err(crowd(Crowd::Logins));
        }
        if address.is_some() && limits.logins_per_address.is_some_and(|most| own >= most) {
            return Err(crowd(Crowd::LoginsOfAddress));
        }
        waiters.count += 1;
        if let Some(address) = address {
            *waiters.by_address.entry(address).or_default() += 1;
        }
        Ok(LoginSlot { admissions: Arc::clone(self), waiting, address })
    }
}

impl LoginSlot {
    /// It is a cancel request that waits for a peer, and not for a login any more.
    pub(super) fn pass_on(self, limits: &ClientLimits) -> Result<Self, Crowd> {
        self.admissions.wait(Waiting::Peer, self.address, limits)
    }

    /// The client is logged in as this user.
    pub(super) fn admit(self, user: &Arc<User>, limits: &ClientLimits) -> Result<ClientSlot, Crowd> {
        let mut counts = self.admissions.0.lock();
        let of_user = counts.clients_by_user.get(&user.name).copied().unwrap_or(0);
        let of_address =
            self.address.and_then(|own| counts.clients_by_address.get(&own)).copied().unwrap_or(0);
        if counts.clients >= limits.clients {
            return Err(Crowd::Clients);
        }
        if user.max_clients.is_some_and(|most| of_user >= most) {
            return Err(Crowd::ClientsOfUser);
        }
        if self.address.is_some() && limits.clients_per_address.is_some_and(|most| of_address >= most) {
            return Err(Crowd::ClientsOfAddress);
        }
        counts.clients += 1;
        if let Some(address) = self.address {
            *counts.clients_by_address.entry(address).or_default() += 1;
        }
        match counts.clients_by_user.get_mut(&user.name) {
            Some(count) => *count += 1,
            None => drop(counts.clients_by_user.insert(user.name.clone(), 1)),
        }
        drop(counts);
        let (admissions, address) = (Arc::clone(&self.admissions), self.address);
        Ok(ClientSlot { admissions, address, user: Arc::clone(user) })
    }
}

impl Drop for LoginSlot {
    fn drop(&mut self) {
        let mut counts = self.admissions.0.lock();
        let waiters = &mut counts.waiting[self.waiting as usize];
        waiters.count -= 1;
        if let Some(address) = self.address {
            take_one(&mut waiters.by_address, &address);
        }
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        let mut counts = self.admissions.0.lock();
        counts.clients -= 1;
        take_one(&mut counts.clients_by_user, self.user.name.as_str());
        if let Some(address) = self.address {
            take_one(&mut counts.clients_by_address, &address);
        }
    }
}

/// As which address somebody counts; none on this machine. Whoever has one of IPv6 usually has the whole /64, and could come from another
/// one each time.
fn counted(peer: &Peer) -> Option<IpAddr> {
    Some(match peer.address().filter(|_| !peer.is_local())? {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
    })
}

/// Counts one less. What has none is forgotten, so that the map does not grow with every address ever seen.
fn take_one<K, Q>(counts: &mut BTreeMap<K, usize>, key: &Q)
where
    K: std::borrow::Borrow<Q> + Ord,
    Q: Ord + ?Sized,
{
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::{UserDefaults, Users};

    const LIMITS: ClientLimits =
        ClientLimits { clients: 3, clients_per_address: Some(2), logins: 2, logins_per_address: Some(1) };

    fn user(name: &str, most: usize) -> Arc<User> {
        let text = format!("[[user]]\nname = '{name}'\nrole = 'r'\nmax_clients = {most}\n");
        let defaults = UserDefaults { trust: true, ..UserDefaults::default() };
        Arc::clone(Users::parse("users.toml", &text, &defaults).unwrap().find(name).unwrap())
    }

    fn peer(address: &str) -> Peer {
        Peer::Tcp(format!("{address}:1").parse().unwrap())
    }

    #[test]
    fn each_limit_holds_and_everything_is_given_back() {
        let admissions = Arc::new(Admissions::default());
        let begin = |address: &str| admissions.begin(&peer(address), &LIMITS);
        let first = begin("10.0.0.1").unwrap();
        assert_eq!(begin("10.0.0.1").err(), Some(Crowd::LoginsOfAddress));
        let second = begin("10.0.0.2").unwrap();
        assert_eq!(begin("10.0.0.3").err(), Some(Crowd::Logins));
        drop(second);
        let (app, one) = (user("app", 9), user("one", 1));
        let mut clients = vec![first.admit(&app, &LIMITS).unwrap()];
        clients.push(begin("10.0.0.1").unwrap().admit(&app, &LIMITS).unwrap());
        assert_eq!(begin("10.0.0.1").unwrap().admit(&app, &LIMITS).err(), Some(Crowd::ClientsOfAddress));
        clients.push(begin("10.0.0.2").unwrap().admit(&one, &LIMITS).unwrap());
        assert_eq!(begin("10.0.0.3").unwrap().admit(&app, &LIMITS).err(), Some(Crowd::Clients));
        assert_eq!((admissions.clients(), admissions.clients_of("app"), admissions.logins()), (3, 2, 0));
        clients.remove(0);
        assert_eq!(begin("10.0.0.3").unwrap().admit(&one, &LIMITS).err(), Some(Crowd::ClientsOfUser));
        drop(clients);
        let counts = admissions.0.lock();
        assert_eq!(counts.clients, 0);
        assert!(counts.clients_by_user.is_empty() && counts.clients_by_address.is_empty());
        assert!(counts.waiting.iter().all(|waiters| waiters.count == 0 && waiters.by_address.is_empty()));
    }

    /// Those who hold up cancel requests do not hold up logins, nor those who hold up one way the other.
    #[test]
    fn cancel_requests_of_peers_are_counted_by_themselves() {
        let admissions = Arc::new(Admissions::default());
        let limits = ClientLimits { logins: 2, logins_per_address: None, ..LIMITS };
        let begin = || admissions.begin(&peer("10.0.0.1"), &limits);
        let passed: Vec<_> = (0..2).map(|_| begin().unwrap().pass_on(&limits).unwrap()).collect();
        let heard: Vec<_> = (0..2).map(|_| admissions.hear(&peer("10.0.0.2"), &limits).unwrap()).collect();
        assert_eq!(admissions.logins(), 0);
        let (one, _two) = (begin().unwrap(), begin().unwrap());
        assert_eq!(begin().err(), Some(Crowd::Logins));
        assert_eq!(one.pass_on(&limits).err(), Some(Crowd::CancelRequests));
        assert_eq!(admissions.hear(&peer("10.0.0.3"), &limits).err(), Some(Crowd::CancelRequests));
        drop((passed, heard));
        assert!(begin().unwrap().pass_on(&limits).is_ok());
        // One address does not take all of it.
        let limits = ClientLimits { logins_per_address: Some(1), ..limits };
        let _first = admissions.hear(&peer("10.0.0.2"), &limits).unwrap();
        assert_eq!(admissions.hear(&peer("10.0.0.2"), &limits).err(), Some(Crowd::CancelRequests));
        assert!(admissions.hear(&peer("10.0.0.3"), &limits).is_ok());
    }

    #[test]
    fn few_wait_to_be_refused() {
        let admissions = Arc::new(Admissions::default());
        let slots = |address: &str| {
            (0..300).map_while(|_| admissions.refuse(&peer(address), &LIMITS)).collect::<Vec<_>>()
        };
        let far = slots("10.0.0.1");
        assert_eq!((far.len(), slots("127.0.0.1").len(), admissions.logins()), (20, 180, 0));
    }

    #[test]
    fn addresses_of_ipv6_count_by_their_network() {
        let admissions = Arc::new(Admissions::default());
        let limits = ClientLimits { logins: 9, ..LIMITS };
        let begin = |address: &str| admissions.begin(&peer(address), &limits);
        let first = begin("[2001:db8:1:2::1]").unwrap();
        assert_eq!(begin("[2001:db8:1:2:ffff:ffff:ffff:ffff]").err(), Some(Crowd::LoginsOfAddress));
        let next = begin("[2001:db8:1:3::1]").unwrap();
        // An IPv4 client of a listener for both families.
        let mapped = begin("[::ffff:10.0.0.1]").unwrap();
        assert_eq!(begin("10.0.0.1").err(), Some(Crowd::LoginsOfAddress));
        let other = begin("[::ffff:10.0.0.2]").unwrap();
        drop((first, next, mapped, other));
        assert!(begin("[2001:db8:1:2::2]").is_ok());
        assert!(admissions.0.lock().waiting[Waiting::Login as usize].by_address.is_empty());
    }

    #[test]
    fn this_machine_has_no_limit_by_address() {
        let admissions = Arc::new(Admissions::default());
        let limits = ClientLimits { logins: 9, ..LIMITS };
        let slots: Vec<_> = [peer("127.0.0.1"), peer("127.0.0.1"), Peer::Unix, Peer::Unix]
            .iter()
            .map(|peer| admissions.begin(peer, &limits).unwrap())
            .collect();
        assert_eq!(admissions.logins(), slots.len());
    }
}
