//! Panics of games: caught, and told in one line.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

/// Longest message of a panic in an error, in bytes.
const MESSAGE_MAX: usize = 500;

thread_local! {
    /// Whether a panic of this thread will be caught and told by us.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Runs `work`, which ends with `catch_unwind`. A panic becomes one line that says its message and its place.
///
/// Panics of this thread print nothing meanwhile. For that, the first call puts a hook before the panic hook of the
/// program, which all other panics still reach.
pub(crate) fn caught<T>(work: impl FnOnce() -> std::thread::Result<T>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let former = panic::take_hook();
        panic::set_hook(Box::new(move |info| note(info, &former)));
    });
    let outer = IS_CAUGHT.replace(true);
    let result = work().map_err(|payload| {
        let place = PLACE.take();
        line(payload, place.as_deref())
    });
    IS_CAUGHT.set(outer);
    result
}

fn note(info: &PanicHookInfo<'_>, former: &(dyn Fn(&PanicHookInfo<'_>) + Send + Sync)) {
    match IS_CAUGHT.get() {
        true => PLACE.set(info.location().map(|location| format!("{}:{}", location.file(), location.line()))),
        false => former(info),
    }
}

fn line(payload: Box<dyn Any + Send>, place: Option<&str>) -> String {
    let message = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (None, Some(text)) => text.as_str(),
        (None, None) => "no message",
    };
    let mut text: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.len() > MESSAGE_MAX {
        let end = (0..=MESSAGE_MAX).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        text.truncate(end);
        text.push('…');
    }
    if let Some(place) = place {
        text = format!("{text} ({place})");
    }
    // A payload may panic when it is dropped, and so may the payload of that panic.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(work: impl FnOnce()) -> String {
        caught(|| catch_unwind(AssertUnwindSafe(work))).expect_err("it panics")
    }

    #[test]
    fn a_panic_becomes_one_line_with_its_place() {
        let text = told(|| panic!("no\n  room: {}", 7));
        assert!(text.starts_with("no room: 7 (") && text.contains("panics.rs:"), "{text}");
        let long = told(|| panic!("{}", "ä".repeat(10_000)));
        assert!(long.len() < MESSAGE_MAX + 100 && long.contains('…'), "{}", long.len());
        assert!(told(|| panic::panic_any(7_u8)).starts_with("no message ("));
        assert_eq!(caught(|| catch_unwind(|| 7)), Ok(7));
    }

    #[test]
    fn a_payload_that_panics_in_turn_does_no_harm() {
        struct Bomb;
        impl Drop for Bomb {
            fn drop(&mut self) {
                panic!("and again");
            }
        }
        assert!(told(|| panic::panic_any(Bomb)).starts_with("no message"));
    }
}
