//! Messages between a server and bots on another machine, so that the server has the report of both.
//!
//! ```text
//! bots                                             server
//!   measuring begins: the bots' settings  ------->   counts from now on
//!   a second has passed: its figures      ------->   keeps them for the curves
//!   measuring has ended                   ------->   lets nothing move any more, waits until everything has arrived
//!   compare                               <-------   the truth, in parts
//!   the report                            ------->   writes summary and page
//!   leave                                 <-------   kept
//! ```
//!
//! One of the bots speaks for all of its process. A message from the other machine is checked like all input: it is short, of a
//! known step, and JSON of the expected form. Other messages are counted and change nothing.

use throng::Replicate;

/// The longest [`Talk::body`].
pub const BODY_MAX: usize = 128 << 10;
/// The longest truth that is sent. A world with more objects is not compared.
pub const TRUTH_MAX: usize = 1_000_000;
/// The lane: reliable, in order.
pub const LANE: u8 = 0;

/// A message of either side.
#[derive(Clone, Debug, Default, PartialEq, Replicate)]
pub struct Talk {
    /// [`Step`], as a number.
    #[replicate(integer)]
    pub step: u8,
    /// Parts that are still to come.
    #[replicate(integer)]
    pub parts_left: u16,
    /// JSON, or a part of the truth.
    #[replicate(bytes(max_bytes = 131072))]
    pub body: Vec<u8>,
}

/// The meaning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// From the bots: measuring begins. The body is their scenario.
    Begun,
    /// From the bots: a second has passed.
    Second,
    /// From the bots: measuring has ended.
    Ended,
    /// From the server: a part of its last state.
    Truth,
    /// From the bots: their report.
    Report,
    /// From the server: the report is written. The body is the name of its folder.
    Kept,
}

impl Step {
    const ALL: [Step; 6] = [Step::Begun, Step::Second, Step::Ended, Step::Truth, Step::Report, Step::Kept];
}

impl Talk {
    /// A message of a single part; `None` if its body is too long.
    pub fn new(step: Step, body: Vec<u8>) -> Option<Talk> {
        Talk::part(step, 0, body)
    }

    /// The messages of a body of any length up to [`TRUTH_MAX`].
    pub fn parts(step: Step, body: &[u8]) -> Option<Vec<Talk>> {
        if body.len() > TRUTH_MAX {
            return None;
        }
        let count = body.len().div_ceil(BODY_MAX).max(1);
        let mut bodies: Vec<Vec<u8>> = body.chunks(BODY_MAX).map(<[u8]>::to_vec).collect();
        bodies.resize(count, Vec::new());
        (0..).zip(bodies).map(|(number, body)| Talk::part(step, (count - 1 - number) as u16, body)).collect()
    }

    fn part(step: Step, parts_left: u16, body: Vec<u8>) -> Option<Talk> {
        let number = Step::ALL.iter().position(|of| *of == step)? as u8;
        (body.len() <= BODY_MAX).then_some(Talk { step: number, parts_left, body })
    }

    /// Its meaning; `None` if it has none that is known.
    pub fn step(&self) -> Option<Step> {
        Step::ALL.get(usize::from(self.step)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_body_comes_in_parts_and_one_that_is_too_long_does_not() {
        let body: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
        let parts = Talk::parts(Step::Truth, &body).unwrap();
        assert_eq!(parts.iter().map(|part| part.parts_left).collect::<Vec<_>>(), [2, 1, 0]);
        assert!(parts.iter().all(|part| part.step() == Some(Step::Truth)));
        assert_eq!(parts.iter().flat_map(|part| &part.body).copied().collect::<Vec<u8>>(), body);
        assert_eq!(Talk::parts(Step::Truth, &[]).unwrap().len(), 1);
        assert_eq!(Talk::parts(Step::Truth, &vec![0; TRUTH_MAX + 1]), None);
        assert_eq!(Talk::new(Step::Report, vec![0; BODY_MAX + 1]), None);
    }

    #[test]
    fn a_step_that_nobody_knows_is_none() {
        assert_eq!(Talk { step: 6, ..Talk::default() }.step(), None);
        assert_eq!(Talk::new(Step::Kept, Vec::new()).unwrap().step(), Some(Step::Kept));
    }
}
