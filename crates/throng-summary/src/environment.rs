//! The machine and the program of a run; without them a figure has no meaning.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use throng_crowd::scenario::Scenario;

/// The machine, the program, and how it was called.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Environment {
    /// Model of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: u32,
    /// Whether the processor says that it is a hypervisor's.
    pub virtual_machine: bool,
    /// Memory of the machine; 0 if unknown.
    pub memory_bytes: u64,
    /// Name and release of the kernel.
    pub kernel: String,
    /// Frequency governor of the first core.
    pub governor: String,
    /// Clock source of the kernel.
    pub clocksource: String,
    /// `release` or `debug`.
    pub profile: String,
    /// Target triple's parts: architecture and operating system.
    pub target: String,
    /// Version of the program.
    pub version: String,
    /// The program's arguments, without the program itself.
    pub command_line: Vec<String>,
    /// The scenario with everything that the command line changed in it: keys of a scenario file.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub settings: Scenario,
}

impl Environment {
    /// Asks the system. Missing facts are [`throng_machine::UNKNOWN`].
    pub fn capture(settings: &Scenario) -> Environment {
        Environment {
            cpu: throng_machine::processor(),
            cores: throng_machine::cores(),
            virtual_machine: throng_machine::is_virtual_machine(),
            memory_bytes: throng_machine::memory_bytes(),
            kernel: throng_machine::kernel(),
            governor: throng_machine::governor(),
            clocksource: throng_machine::clocksource(),
            profile: throng_machine::profile(),
            target: throng_machine::target(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line: throng_machine::arguments(),
            settings: settings.clone(),
        }
    }

    /// An invented machine, for tests and examples.
    pub fn example(settings: Scenario) -> Environment {
        Environment {
            cpu: "Example CPU @ 3.0 GHz".to_owned(),
            cores: 2,
            virtual_machine: true,
            memory_bytes: 8 << 30,
            kernel: "Linux 6.12.0".to_owned(),
            governor: "performance".to_owned(),
            clocksource: "tsc".to_owned(),
            profile: "release".to_owned(),
            target: "x86_64-linux".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line: vec!["crowd".to_owned(), "--pin".to_owned()],
            settings,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use throng_crowd::scenario::Overrides;

    #[test]
    fn capture_always_answers() {
        let settings = Scenario::resolve("dense", &Overrides::default()).unwrap();
        let environment = Environment::capture(&settings);
        assert!(environment.cores >= 1);
        assert!(!environment.cpu.is_empty() && !environment.kernel.is_empty() && !environment.governor.is_empty());
        assert_eq!(environment.settings, settings);
    }
}
