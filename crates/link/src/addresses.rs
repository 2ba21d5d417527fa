//! Addresses inside the namespaces. A user's address determines its link, so a client chooses a
//! link by the address that it binds.

use std::net::Ipv4Addr;

/// The relay's address.
pub const RELAY: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 1);

/// The addresses of users: 10.80.0.0/12.
pub(crate) const USERS: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 80, 0, 0), 12);

/// A user whose packets cross no link. It prepares the relay before the clock starts.
pub const UNSHAPED: Ipv4Addr = Ipv4Addr::new(10, 80, 0, 1);

/// The most links of one emulator.
pub const MOST_LINKS: usize = 15;

/// The most users of one link.
pub const MOST_USERS: usize = 65_534;

/// Bits of an address that number the users of one link.
const USER_BITS: u32 = 16;

/// The address of a user of a link; `None` beyond [`MOST_LINKS`] and [`MOST_USERS`].
pub fn user_address(link: usize, user: usize) -> Option<Ipv4Addr> {
    let fits = link < MOST_LINKS && user < MOST_USERS;
    let offset = u32::try_from(((link + 1) << USER_BITS) + user + 1).ok().filter(|_| fits)?;
    Some(Ipv4Addr::from_bits(USERS.0.to_bits() + offset))
}

/// The user with an address, as the emulator numbers users.
pub(crate) fn user_of(address: Ipv4Addr) -> Option<u32> {
    let offset = address.to_bits().checked_sub(USERS.0.to_bits())?;
    (offset < 1 << (32 - u32::from(USERS.1))).then_some(offset)
}

/// The place of a user's link; `None` for users without one.
pub(crate) fn link_of(user: u32) -> Option<usize> {
    usize::try_from(user >> USER_BITS).ok()?.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_says_which_link_its_user_has() {
        for (link, user) in [(0, 0), (0, 65_533), (1, 0), (14, 65_533)] {
            let address = user_address(link, user).unwrap();
            assert_eq!(user_of(address).and_then(link_of), Some(link), "{address}");
        }
        assert_eq!(user_address(0, 0).unwrap().to_string(), "10.81.0.1");
        assert_eq!((user_address(15, 0), user_address(0, 65_534)), (None, None));
        assert_eq!(user_of(UNSHAPED).map(link_of), Some(None));
        for foreign in
            [RELAY, Ipv4Addr::LOCALHOST, Ipv4Addr::new(10, 96, 0, 1), Ipv4Addr::new(10, 79, 255, 255)]
        {
            assert_eq!(user_of(foreign), None, "{foreign}");
        }
    }
}
