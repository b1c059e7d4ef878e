//! Datagrams that the kernel dropped because a socket's receive buffer was full: its largest queue, and the only one
//! that is invisible to this process.
//!
//! The count is the one that `SO_RXQ_OVFL` reports beside datagrams. It is read from the kernel's table of sockets, so
//! that no datagram costs more for it.

#[cfg(any(target_os = "linux", target_os = "android"))]
use std::fs;
use std::net::UdpSocket;

/// Datagrams dropped since the socket was opened; `None` where the system does not tell.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn kernel_dropped(socket: &UdpSocket) -> Option<u64> {
    use std::os::fd::AsRawFd;

    let link = fs::read_link(format!("/proc/self/fd/{}", socket.as_raw_fd())).ok()?;
    let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned();
    let table = if socket.local_addr().ok()?.is_ipv4() { "/proc/self/net/udp" } else { "/proc/self/net/udp6" };
    dropped_of(&inode, &fs::read_to_string(table).ok()?)
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn kernel_dropped(_socket: &UdpSocket) -> Option<u64> {
    None
}

/// The last column of the line with this inode, the tenth.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn dropped_of(inode: &str, table: &str) -> Option<u64> {
    let line = table.lines().skip(1).find(|line| line.split_whitespace().nth(9) == Some(inode))?;
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(all(test, any(target_os = "linux", target_os = "android")))]
mod tests {
    use super::*;

    #[test]
    fn the_count_stands_in_the_last_column_of_the_sockets_line() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref \
                     pointer drops\n 1: 0100007F:9C40 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        \
                     0 777 2 0000000000000000 7\n 2: 0100007F:9C41 00000000:0000 07 00000000:00000000 00:00000000 00000000  \
                     1000        0 778 2 0000000000000000 0\n";
        assert_eq!(dropped_of("777", table), Some(7));
        assert_eq!(dropped_of("778", table), Some(0));
        assert_eq!(dropped_of("779", table), None);
        assert_eq!(dropped_of("777", "no table at all"), None);
    }
}
