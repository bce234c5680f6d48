//! A flag for each setting of the gateway.

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use forebay_gateway::config::{ConfigBuilder, SETTINGS};

/// The settings that were given as flags.
#[derive(Debug, Default)]
pub(crate) struct SettingFlags(Vec<(&'static str, String)>);

impl SettingFlags {
    /// Hands them to the builder.
    pub(super) fn give(&self, builder: ConfigBuilder) -> ConfigBuilder {
        self.0.iter().fold(builder, |builder, (key, value)| builder.flag(key, value))
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut flags = Self::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        let given = SETTINGS.iter().filter_map(|setting| {
            let value = matches.try_get_one::<String>(setting.key).ok()??;
            Some((setting.key, value.clone()))
        });
        self.0 = given.collect();
        Ok(())
    }
}

impl Args for SettingFlags {
    fn augment_args(command: Command) -> Command {
        SETTINGS.iter().fold(command, |command, setting| {
            let mut help = setting.meaning.to_owned();
            if let Some(first) = help.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            if !setting.default.is_empty() {
                help = format!("{help}. Default: {}", setting.default);
            }
            let kind = setting.kind.trim_end_matches(",...");
            let name = if setting.is_list() { format!("{kind},..") } else { kind.to_owned() };
            command.arg(
                Arg::new(setting.key)
                    .long(setting.flag())
                    .value_name(name)
                    .help(help)
                    .help_heading("Settings"),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
