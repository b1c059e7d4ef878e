//! A second rewinding with a pose for each tick, to compare verdicts.

use throng::Tick;
use throng_rewind::{
    BodyId, BonePose, Break, Case, Comparison, PartId, Rewind, RewindOptions, ShapeId, Shot, SkeletonId, Surroundings,
    Transform, Verdict,
};

use crate::tactical::TacticalError;

#[derive(Debug)]
pub(crate) struct Twin {
    rewind: Rewind,
    case: Case,
    comparison: Comparison,
}

impl Twin {
    /// With the same bodies and parts, before the first step.
    pub(crate) fn new(
        of: &Rewind,
        (bodies, skeleton): (usize, SkeletonId),
        (parts, shape): (usize, ShapeId),
    ) -> Result<Twin, TacticalError> {
        let options = RewindOptions { history: of.options().history.full_rate(), ..*of.options() };
        let mut rewind = Rewind::new(options, of.models().clone())?;
        for _ in 0..bodies {
            rewind.add_body(skeleton)?;
        }
        for _ in 0..parts {
            rewind.add_part(shape, u32::MAX)?;
        }
        Ok(Twin { rewind, case: Case::new(), comparison: Comparison::default() })
    }

    pub(crate) fn comparison(&self) -> &Comparison {
        &self.comparison
    }

    pub(crate) fn record(&mut self, body: BodyId, tick: Tick, root: &Transform, bones: &[BonePose]) {
        // Refused for wrong numbers only, which the other rewinding counts.
        let _ = self.rewind.record(body, tick, root, bones);
    }

    pub(crate) fn break_body(&mut self, body: BodyId, tick: Tick, cause: Break) {
        self.rewind.break_body(body, tick, cause);
    }

    pub(crate) fn record_part(&mut self, part: PartId, tick: Tick, transform: &Transform) {
        let _ = self.rewind.record_part(part, tick, transform);
    }

    pub(crate) fn break_part(&mut self, part: PartId, tick: Tick, cause: Break) {
        self.rewind.break_part(part, tick, cause);
    }

    /// Judges a shot once more, and compares.
    pub(crate) fn judge(
        &mut self,
        (of, verdict): (&Rewind, &Verdict),
        shot: &Shot,
        targets: &[BodyId],
        surroundings: &impl Surroundings,
    ) {
        let Ok(other) = self.rewind.judge(shot, targets, surroundings, &mut self.case) else { return };
        self.comparison.add(verdict, &other);
        for target in targets {
            self.comparison.add_bones(of, &self.rewind, *target, verdict.view.moment);
        }
    }
}
