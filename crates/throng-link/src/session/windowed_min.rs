//! The smallest of the recent samples.

/// The smallest sample of the last one to two spans, in constant space.
#[derive(Debug)]
pub(super) struct WindowedMin {
    span: u64,
    began: Option<u64>,
    current: u32,
    previous: u32,
}

impl WindowedMin {
    /// `span` is in whatever unit the positions of the samples have. `before` is what is taken to have been before the
    /// first span.
    pub(super) fn new(span: u64, before: u32) -> WindowedMin {
        WindowedMin { span, began: None, current: u32::MAX, previous: before }
    }

    /// Positions never fall.
    pub(super) fn sample(&mut self, position: u64, value: u32) {
        let began = *self.began.get_or_insert(position);
        if position.saturating_sub(began) >= self.span {
            self.previous = self.current;
            self.current = u32::MAX;
            self.began = Some(position);
        }
        self.current = self.current.min(value);
    }

    pub(super) fn value(&self) -> u32 {
        self.current.min(self.previous)
    }
}
