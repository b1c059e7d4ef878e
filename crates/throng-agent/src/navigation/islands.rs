//! Which cells can be reached from which: areas without a way out of which there is no way back, and the order among them.

use super::{Grid, Reach};

/// An area: from each of its cells there is a way to each other one. Areas are in such an order that ways between them
/// lead from higher to lower numbers only.
pub(super) struct Part {
    cells: u32,
    /// Areas with different islands are not connected in any direction.
    island: u32,
    is_from_main: bool,
    leads_to_main: bool,
}

/// The number of the largest area; of several, the first.
fn main(parts: &[Part]) -> u32 {
    let largest = parts.iter().enumerate().rev().max_by_key(|(_, part)| part.cells);
    largest.map_or(0, |(number, _)| number as u32)
}

pub(super) fn reach(parts: &[Part], from: u32, to: u32) -> Reach {
    let (a, b) = (&parts[from as usize], &parts[to as usize]);
    if from == to || (a.leads_to_main && b.is_from_main) {
        Reach::Yes
    } else if a.island != b.island || from < to || (a.is_from_main && !b.is_from_main) {
        Reach::No
    } else if !a.leads_to_main && b.leads_to_main {
        // A way through b would lead to the largest area.
        Reach::No
    } else {
        Reach::Unknown
    }
}

/// Finds the areas and numbers them.
pub(super) fn find(grid: &mut Grid) {
    let count = components(grid);
    let mut parts: Vec<Part> =
        (0..count).map(|island| Part { cells: 0, island, is_from_main: false, leads_to_main: false }).collect();
    for cell in &grid.cells {
        parts[cell.part as usize].cells += 1;
    }
    let ways = ways_between(grid);
    for (from, to) in &ways {
        let (a, b) = (root(&mut parts, *from), root(&mut parts, *to));
        parts[a.max(b) as usize].island = a.min(b);
    }
    for part in 0..count {
        parts[part as usize].island = root(&mut parts, part);
    }
    grid.main = main(&parts);
    let main = grid.main as usize;
    parts[main].is_from_main = true;
    parts[main].leads_to_main = true;
    // Ways are sorted by where they begin: upwards, all that lies behind an area is known when it is reached.
    for (from, to) in &ways {
        parts[*from as usize].leads_to_main |= parts[*to as usize].leads_to_main;
    }
    for (from, to) in ways.iter().rev() {
        parts[*to as usize].is_from_main |= parts[*from as usize].is_from_main;
    }
    grid.parts = parts;
}

fn root(parts: &mut [Part], mut part: u32) -> u32 {
    while parts[part as usize].island != part {
        let above = parts[part as usize].island;
        parts[part as usize].island = parts[above as usize].island;
        part = above;
    }
    part
}

/// Links between areas, sorted.
fn ways_between(grid: &Grid) -> Vec<(u32, u32)> {
    let mut ways = Vec::new();
    for cell in &grid.cells {
        for direction in 0..8 {
            if let Some(to) = grid.target(cell, direction)
                && grid.cells[to].part != cell.part
            {
                ways.push((cell.part, grid.cells[to].part));
            }
        }
    }
    ways.sort_unstable();
    ways.dedup();
    ways
}

/// Strongly connected components (Tarjan 1972), without recursion. They come out in the order in which nothing leads from
/// a lower to a higher number.
fn components(grid: &mut Grid) -> u32 {
    const UNSEEN: u32 = u32::MAX;
    let count = grid.cells.len();
    let (mut order, mut low) = (vec![UNSEEN; count], vec![0_u32; count]);
    let mut is_open = vec![false; count];
    let (mut open, mut walk): (Vec<u32>, Vec<(u32, u8)>) = (Vec::new(), Vec::new());
    let (mut seen, mut parts) = (0, 0);
    for start in 0..count as u32 {
        if order[start as usize] == UNSEEN {
            walk.push((start, 0));
        }
        while let Some((cell, direction)) = walk.pop() {
            let at = cell as usize;
            if direction == 0 {
                (order[at], low[at], is_open[at]) = (seen, seen, true);
                seen += 1;
                open.push(cell);
            }
            if direction < 8 {
                walk.push((cell, direction + 1));
                match grid.target(&grid.cells[at], usize::from(direction)) {
                    Some(to) if order[to] == UNSEEN => walk.push((to as u32, 0)),
                    Some(to) if is_open[to] => low[at] = low[at].min(order[to]),
                    _ => {}
                }
                continue;
            }
            if low[at] == order[at] {
                while let Some(member) = open.pop() {
                    is_open[member as usize] = false;
                    grid.cells[member as usize].part = parts;
                    if member == cell {
                        break;
                    }
                }
                parts += 1;
            }
            if let Some((above, _)) = walk.last() {
                low[*above as usize] = low[*above as usize].min(low[at]);
            }
        }
    }
    parts
}
