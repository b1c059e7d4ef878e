use std::net::SocketAddr;

/// A seed of its own for everything that hangs on `address`, the same in every run and on every machine.
pub(crate) fn seed_for(seed: u64, address: SocketAddr) -> u64 {
    let ip = address.ip().to_canonical();
    let bits = match ip {
        std::net::IpAddr::V4(ip) => u128::from(ip.to_bits()),
        std::net::IpAddr::V6(ip) => ip.to_bits(),
    };
    let words = [bits as u64, (bits >> 64) as u64, u64::from(address.port())];
    words.into_iter().fold(mix(seed), |seed, word| mix(seed ^ word))
}

/// One step of SplitMix64 (Steele, Lea and Flood 2014): neighbouring inputs get unrelated outputs.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_by_seed_address_and_port() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mut seeds: Vec<u64> = ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1", "[::1]:1"]
            .into_iter()
            .flat_map(|text| [seed_for(1, address(text)), seed_for(2, address(text))])
            .collect();
        seeds.sort_unstable();
        seeds.dedup();
        assert_eq!(seeds.len(), 8);
    }
}
