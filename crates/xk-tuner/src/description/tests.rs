use std::fs;

use super::*;
use crate::knob::Plain;
use crate::modules::{Described, ModuleError};
use xk_runtime::{Meter, Parameter as Tunable, Role, Values};

/// A machine without modules.
struct Nothing;

impl Modules for Nothing {
    fn look(&self) -> Result<Described, ModuleError> {
        Ok(Described::default())
    }
}

const SEARCH: &str = r#"
schema = 1
subsystem = "disk"
with = { disk = "sda" }
parameters = ["scheduler", "expire"]

[target]
command = "echo 5"
measure = "number"
goal = "maximise"
timeout = "5s"
"#;

const DISK: &str = r#"
schema = 1
summary = "One disk"
variables = { disk = "a block device" }

[[parameter]]
name = "scheduler"
file = "/sys/block/{disk}/queue/scheduler"
choices = "offered"

[[parameter]]
name = "expire"
file = "/sys/block/{disk}/queue/iosched/read_expire"
min = 100
max = 800
steps = "exponential"
default = 500
only_if = { scheduler = "mq-deadline" }
settle = "20ms"
at_end = "revert"

[[parameter]]
name = "plug"
const = "BLK_MAX_REQUEST_COUNT"
choices = [16, 32]

[[sensor]]
name = "size"
of = ["/sys/block/{disk}/stat:3"]
per = ["/sys/block/{disk}/stat:1"]
similar = 0.2
"#;

/// Reads a search with a subsystem beside it; an error loses the folder's name.
fn read(search: &str, disk: &str) -> Result<Job, String> {
    read_all(search, disk).map(|mut jobs| jobs.remove(0))
}

fn read_all(search: &str, disk: &str) -> Result<Vec<Job>, String> {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("disk.toml"), disk).unwrap();
    fs::write(folder.path().join("my.toml"), search).unwrap();
    Job::read(&folder.path().join("my.toml"), &[folder.path().join("none"), folder.path().to_owned()], &Nothing)
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

/// What is wrong when a part of one of the texts is another.
fn wrong(from: &str, to: &str) -> String {
    assert!(SEARCH.contains(from) || DISK.contains(from), "{from}");
    read(&SEARCH.replace(from, to), &DISK.replace(from, to)).unwrap_err()
}

#[test]
fn a_description_is_understood() {
    let job = read(SEARCH, DISK).unwrap();
    assert_eq!((job.name.as_str(), job.parameters.len()), ("my", 2));
    let expire = &job.parameters[1];
    let file = PathBuf::from("/sys/block/sda/queue/iosched/read_expire");
    assert_eq!(expire.backing, Backing::Plain(Plain::File(file)));
    assert_eq!(expire.domain, Domain::Numbers([100, 200, 400, 800].map(Value::Number).to_vec()));
    assert_eq!(expire.only_if, Some(("scheduler".into(), vec![Value::Words("mq-deadline".into())])));
    assert_eq!((expire.settle, expire.at_end), (Duration::from_millis(20), AtEnd::Revert));
    assert_eq!(job.sensors[0].of, ["/sys/block/sda/stat:3"]);
}

#[test]
fn a_knob_settles_unless_the_description_says_that_it_need_not() {
    let settle = |disk: &str| {
        let parameters = read(&SEARCH.replace("\"expire\"]", "\"plug\"]"), disk).unwrap().parameters;
        parameters.iter().map(|parameter| parameter.settle.as_millis()).collect::<Vec<_>>()
    };
    assert_eq!(settle(DISK), [100, 100], "a file and a perf-const");
    let at_once = DISK.replace("choices = \"offered\"", "choices = \"offered\"\nsettle = \"0s\"");
    assert_eq!(settle(&at_once), [0, 100]);
}

#[test]
fn errors_point_at_the_line() {
    for (from, to, place, message) in [
        ("timeout = \"5s\"", "timeout = \"5 fortnights\"", "my.toml:11", "is not a time"),
        ("goal = \"maximise\"", "goal = \"more\"", "my.toml:10", "unknown variant `more`"),
        ("goal = \"maximise\"", "goal = \"maximise\"\ngaol = 1", "my.toml:11", "unknown field `gaol`"),
        ("\"expire\"]", "\"expiry\"]", "my.toml:5", "no parameter `expiry`; there are: scheduler, expire, plug"),
        ("subsystem = \"disk\"", "subsystem = \"disc\"", "my.toml:3", "no subsystem `disc`"),
        ("with = { disk = \"sda\" }", "", "my.toml:3", "needs a value for disk (a block device)"),
        ("disk = \"sda\"", "disk = \"../../etc\"", "disk.toml:6", "plain name"),
        ("schema = 1\nsubsystem", "schema = 7\nsubsystem", "my.toml:2", "schema 7"),
        ("max = 800", "max = 80", "disk.toml:11", "min = 100 is greater than max = 80"),
        ("max = 800", "", "disk.toml:11", "`min` and `max`"),
        ("const = \"BLK", "sysctl = \"vm.swappiness\"\nconst = \"BLK", "disk.toml:22", "give one of `const`"),
        ("scheduler = \"mq-deadline\"", "sheduler = 1", "disk.toml:11", "there is no parameter `sheduler`"),
        ("similar = 0.2", "similar = 20", "disk.toml:27", "not between 0 and 1"),
        ("similar = 0.2", "similar = 0.2\nwithin = -1", "disk.toml:27", "0 or more"),
        ("stat:1", "stat", "disk.toml:27", "is not a counter"),
        ("\n[target]", "[search]\ntrials = 0\n[target]", "my.toml:7", "would search nothing"),
    ] {
        let error = wrong(from, to);
        assert!(error.starts_with(&format!("{place}: ")) && error.contains(message), "{place} {message}: {error}");
    }
}

/// A search whose target is another.
fn targets(text: &str) -> Result<Job, String> {
    let start = SEARCH.find("[target]").unwrap();
    read(&format!("{}{text}", &SEARCH[..start]), DISK)
}

const SEVERAL_TARGETS: &str = r#"
[[targets]]
name = "answers"
command = "./load"
prometheus = "http://localhost:9090/metrics"
metric = 'answers_total{code="200"}'
measure = "rate"
goal = "maximise"
timeout = "9s"

[[targets]]
name = "p99"
socket = "/run/app.sock"
goal = "minimise"

[[targets]]
name = "joules"
goal = "minimise"

[[constraint]]
name = "errors"
prometheus = "http://localhost:9090/metrics"
metric = "errors"
at_most = 0

[[constraint]]
name = "p99"
at_most = 5
"#;

#[test]
fn targets_may_be_several_and_be_asked_for() {
    use crate::target::{Lead, Quantity, Work};
    let job = targets(SEVERAL_TARGETS).unwrap();
    let target = &job.target;
    assert_eq!((&target.work, &target.lead), (&Work::Command("./load".into()), &Lead::Named("answers".into())));
    let others: Vec<&str> = target.others.iter().map(|other| other.name.as_str()).collect();
    assert_eq!(others, ["p99", "joules"]);
    let probes: Vec<String> = target.probes.iter().map(|probe| format!("{} = {probe}", probe.name)).collect();
    assert_eq!(
        probes,
        [
            "answers = growth per second of answers_total{code=\"200\"} at http://localhost:9090/metrics",
            "p99 = what /run/app.sock says",
            "errors = errors at http://localhost:9090/metrics"
        ]
    );
    assert_eq!((target.probes[0].quantity, target.probes[1].quantity), (Quantity::Rate, Quantity::Number));
    assert_eq!((job.constraints.len(), job.constraints[1].at_most), (2, Some(5.0)));
    let waits = SEVERAL_TARGETS.replace("command = \"./load\"", "window = \"5s\"");
    assert_eq!(targets(&waits).unwrap().target.work, Work::Time(Duration::from_secs(5)));
}

#[test]
fn targets_that_make_no_sense_are_refused_at_their_line() {
    for (from, to, line, message) in [
        ("command = \"./load\"", "", 8, "the `window` of time"),
        ("command = \"./load\"", "command = \"./load\"\nwindow = \"5s\"", 8, "leave `window` out"),
        ("command = \"./load\"", "window = \"9s\"", 8, "must be longer than the `window`"),
        ("timeout = \"9s\"", "", 8, "give `timeout`"),
        ("measure = \"rate\"", "measure = \"seconds\"", 8, "only a command has \"seconds\""),
        ("http://localhost", "ftp://localhost", 8, "not the address"),
        ("metric = 'answers", "metric = 'ans wers", 8, "is not a metric"),
        ("metric = \"errors\"", "", 26, "name the `metric`"),
        ("name = \"joules\"", "", 22, "needs a `name`"),
        ("name = \"joules\"", "name = \"joules\"\ntimeout = \"1s\"", 22, "the window belongs to the first target"),
        ("name = \"joules\"", "name = \"p99\"", 8, "two targets are called `p99`"),
        ("name = \"errors\"", "name = \"p99\"", 26, "`p99` has two sources"),
        ("socket = \"/run", "metric = \"x\"\nsocket = \"/run", 17, "a socket sends one number"),
        ("socket = \"/run", "prometheus = \"http://a/\"\nsocket = \"/run", 17, "not both"),
        ("[[targets]]\nname = \"joules", "[target]\nname = \"joules", 22, "not both"),
        ("at_most = 0", "", 26, "`at_most` or `at_least`"),
    ] {
        assert!(SEVERAL_TARGETS.contains(from), "{from}");
        let error = targets(&SEVERAL_TARGETS.replace(from, to)).unwrap_err();
        assert!(
            error.starts_with(&format!("my.toml:{line}: ")) && error.contains(message),
            "{line} {message}: {error}"
        );
    }
    assert!(targets("").unwrap_err().contains("there is no [target]"));
    let neither = "[target]\nwindow = \"1s\"\ngoal = \"maximise\"\ntimeout = \"9s\"\n";
    assert!(targets(neither).unwrap_err().contains("a `window` has no number of its own"));
}

#[test]
fn a_guard_that_can_never_hold_is_refused() {
    let error = wrong("choices = \"offered\"", "choices = [\"none\", \"kyber\"]");
    assert!(
        error.contains("scheduler = mq-deadline, which is not a value of scheduler; its values are: none, kyber"),
        "{error}"
    );
}

#[test]
fn nonsense_is_refused_and_nothing_panics() {
    for text in ["", "schema", "schema = 1", "schema = \"one\"", "[[parameter]]", "\u{0}", "schema = 1\n[target]\n"] {
        assert!(read(text, DISK).is_err(), "{text}");
    }
    for end in 0..SEARCH.len() {
        let _ = read(&SEARCH[..end], DISK);
    }
}

/// The longest file of a subsystem that docs/architecture.md allows.
const LINES: usize = 150;
/// Ratios that are not near 0 with any workload.
const NEVER_NEAR_0: [&str; 2] = ["instructions_per_cycle", "sectors_per_request"];

/// The subsystems of the repository, as they would be installed.
#[test]
fn the_subsystems_of_the_repository_are_understood() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../subsystems");
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let file = entry.unwrap().path();
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.lines().count() <= LINES, "{}", file.display());
        let source = SourceText::read(&file).unwrap();
        let subsystem: schema::SubsystemFile = source.parse().unwrap_or_else(|error| panic!("{error}"));
        let with: Variables = subsystem.variables.keys().map(|name| (name.clone(), "x".into())).collect();
        let parameters =
            parameters(&source, &subsystem.parameter, &with, &Nothing).unwrap_or_else(|error| panic!("{error}"));
        check(&source, &parameters).unwrap_or_else(|error| panic!("{error}"));
        let sensors = sensors(&source, &subsystem.sensor, &with).unwrap_or_else(|error| panic!("{error}"));
        assert!(!parameters.is_empty() && !sensors.is_empty(), "{}", file.display());
        let at_once: Vec<&str> =
            parameters.iter().filter(|one| one.settle.is_zero()).map(|one| one.name.as_str()).collect();
        assert!(at_once.is_empty(), "{}: no settle time: {at_once:?}", file.display());
        // What happens once in a window, and not in the next one, shows no other workload.
        let rare = sensors.iter().filter(|one| !one.per.is_empty() && !NEVER_NEAR_0.contains(&&*one.name));
        let strict: Vec<&str> = rare.filter(|one| one.within == 0.0).map(|one| one.name.as_str()).collect();
        assert!(strict.is_empty(), "{}: no `within`: {strict:?}", file.display());
        seen += 1;
    }
    assert_eq!(seen, 8);
}

const SEVERAL: &str = r#"
schema = 1
subsystems = ["disk"]
with = { disk = "sda" }
[target]
command = "true"
measure = "seconds"
goal = "minimise"
timeout = "9s"
"#;

#[test]
fn several_subsystems_are_jobs_with_a_test_each() {
    let disk =
        DISK.replace("schema = 1", "schema = 1\nbottleneck = { of = [\"/sys/block/{disk}/stat:10\"], at_least = 300 }");
    let jobs = read_all(SEVERAL, &disk).unwrap();
    assert_eq!((jobs.len(), jobs[0].name.as_str()), (1, "my/disk"));
    let test = jobs[0].bottleneck.as_ref().unwrap();
    assert_eq!((test.at_least, test.sensor.of[0].as_str()), (300.0, "/sys/block/sda/stat:10"));
    assert!(read_all(SEVERAL, DISK).unwrap_err().contains("my.toml:3: subsystem `disk` has no `bottleneck`"));
    let told = read_all(SEVERAL, &disk.replace("300", "0")).unwrap_err();
    assert!(told.contains("at_least = 0 must be above 0"), "{told}");
    let both = SEVERAL.replace("with", "parameters = [\"plug\"]\nwith");
    assert!(read_all(&both, &disk).unwrap_err().contains("it excludes `subsystem`"));
    assert!(read_all(&SEVERAL.replace("[\"disk\"]", "[]"), &disk).unwrap_err().contains("names one or more"));
}

/// What is installed.
#[test]
fn every_subsystem_of_the_repository_can_be_one_of_several() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../subsystems");
    let search = tempfile::tempdir().unwrap();
    let names = "[\"disk\", \"writeback\", \"cpu\", \"memory\", \"mapping\", \"tcp\", \"ipc\", \"locks\"]";
    let file = search.path().join("all.toml");
    fs::write(&file, SEVERAL.replace("[\"disk\"]", names)).unwrap();
    let jobs = Job::read(&file, std::slice::from_ref(&folder), &Nothing).unwrap();
    assert_eq!(jobs.len(), 8);
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= LINES, "{}: {lines} lines", path.display());
    }
}

/// What `cargo xtask bench tuner` searches is what users get: a search of the benchmark names shipped parameters only.
#[test]
fn the_searches_of_the_benchmark_have_no_parameters_of_their_own() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut seen = 0;
    for entry in fs::read_dir(root.join("bench/tuner")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let source = SourceText::read(&file).unwrap();
        let search: schema::SearchFile = source.parse().unwrap_or_else(|error| panic!("{error}"));
        assert!(search.parameter.is_empty() && search.sensor.is_empty(), "{}", file.display());
        let jobs = Job::read(&file, &[root.join("subsystems")], &Nothing).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(jobs.len(), 1, "{}", file.display());
        seen += 1;
    }
    assert_eq!(seen, 14);
}

/// A machine with one module.
struct Queue;

impl Modules for Queue {
    fn look(&self) -> Result<Described, ModuleError> {
        let choices = Values::Choices(["fifo", "batch"].map(String::from).to_vec());
        let numbers = Values::Numbers { min: 4, max: 32, step: 2, exponential: true };
        let parameter = |name: &str, values: &Values| Tunable {
            id: 1,
            module: "made_up".into(),
            subsystem: "queue".into(),
            name: name.into(),
            values: values.clone(),
            default: 0,
            value: Ok(0),
            only_if: None,
            settle: Duration::from_millis(10),
            revert: true,
            hold: None,
        };
        let guarded = Tunable { only_if: Some(("policy".into(), 1)), ..parameter("batch", &numbers) };
        let meter = |name: &str, role| Meter {
            module: "made_up".into(),
            subsystem: "queue".into(),
            name: name.into(),
            role,
            divided: !matches!(role, Role::Target { .. }),
            reading: Ok((1, 2)),
        };
        Ok(Described {
            parameters: vec![guarded, parameter("policy", &choices)],
            meters: vec![
                meter("load", Role::Sensor(0.2)),
                meter("served", Role::Target { rate: true, minimise: true }),
                meter("full", Role::Bottleneck(0.5)),
            ],
        })
    }
}

fn read_module(search: &str) -> Result<Job, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("my.toml");
    fs::write(&file, search).unwrap();
    Job::read(&file, &[], &Queue)
        .map(|mut jobs| jobs.remove(0))
        .map_err(|error| error.to_string().replace(&format!("{}/", folder.path().display()), ""))
}

const MODULE: &str = "schema = 1\nsubsystem = \"module:made-up:queue\"\n\
                      [target]\nmodule = \"made_up:queue\"\nwindow = \"1s\"\ntimeout = \"5s\"\n";

#[test]
fn a_module_describes_a_whole_subsystem() {
    let job = read_module(MODULE).unwrap();
    let [batch, policy] = &job.parameters[..] else { panic!("{:?}", job.parameters) };
    assert_eq!(batch.backing, Backing::Module("made_up:batch".into()));
    assert_eq!(batch.domain, Domain::Numbers([4, 8, 16, 32].map(Value::Number).to_vec()));
    assert_eq!(batch.only_if, Some(("policy".into(), vec![Value::Words("batch".into())])));
    assert_eq!((batch.settle, batch.at_end), (Duration::from_millis(10), AtEnd::Revert));
    assert_eq!(policy.domain, Domain::Choices(["fifo", "batch"].map(|word| Value::Words(word.into())).to_vec()));
    let counters = (vec!["module:made_up:load".to_owned()], vec!["module:made_up:load/per".to_owned()]);
    let load = Sensor { name: "load".into(), of: counters.0, per: counters.1, similar: 0.2, within: 0.0 };
    assert_eq!(job.sensors, [load]);
    let test = job.bottleneck.unwrap();
    assert_eq!((&*test.sensor.name, test.at_least), ("module:made-up:queue", 0.5));
    assert_eq!(test.sensor.of, ["module:made_up:full"]);
    assert_eq!(job.target.goal, crate::history::Goal::Minimise);
    assert_eq!(job.target.words(), "1 s; target = growth per second of what module made_up:served says");
}

#[test]
fn a_parameter_of_a_module_may_be_named_alone() {
    let own = |more: &str| {
        let from = "subsystem = \"module:made-up:queue\"\n";
        let parameter = format!("[[parameter]]\nname = \"b\"\nmodule = \"made_up:batch\"\n{more}\n");
        read_module(&MODULE.replace(from, &parameter))
    };
    let batch = own("").unwrap().parameters.remove(0);
    assert_eq!(batch.domain, Domain::Numbers([4, 8, 16, 32].map(Value::Number).to_vec()));
    assert_eq!((batch.settle, batch.at_end), (Duration::from_millis(10), AtEnd::Revert));
    let batch = own("min = 6\nmax = 8\nat_end = \"keep\"\nsettle = \"1s\"").unwrap().parameters.remove(0);
    assert_eq!(batch.domain, Domain::Numbers([6, 7, 8].map(Value::Number).to_vec()));
    assert_eq!((batch.settle, batch.at_end), (Duration::from_secs(1), AtEnd::Keep));
}

#[test]
fn what_no_module_describes_is_said() {
    let wrong = |from: &str, to: &str| {
        assert!(MODULE.contains(from), "{from}");
        read_module(&MODULE.replace(from, to)).unwrap_err()
    };
    for (from, to, place, words) in [
        ("module:made-up:queue", "module:made_up:disk", "my.toml:2", "there are: made_up:queue"),
        ("module:made-up:queue", "module:made_up", "my.toml:2", "`made_up` is not MODULE:NAME"),
        ("\"made_up:queue\"", "\"made_up:disk\"", "my.toml:3", "no loaded module describes a subsystem `made_up:disk`"),
        ("window", "goal = \"maximise\"\nwindow", "my.toml:3", "leave `goal` and `measure` out"),
        ("window", "socket = \"/x\"\nwindow", "my.toml:3", "not both"),
        ("module = \"made_up:queue\"\nwindow = \"1s\"", "command = \"x\"", "my.toml:3", "give `goal`"),
        ("module = \"made_up:queue\"", "socket = \"/x\"", "my.toml:3", "give `goal`"),
    ] {
        let error = wrong(from, to);
        assert!(error.starts_with(place) && error.contains(words), "{error}");
    }
    let own = "schema = 1\n[[parameter]]\nname = \"b\"\nmodule = \"made_up:bath\"\n";
    let error = read_module(own).unwrap_err();
    assert!(
        error.contains("my.toml:2: parameter `b`: no loaded module describes a parameter `made_up:bath`"),
        "{error}"
    );
    assert!(error.contains("there are: made_up:batch, made_up:policy"), "{error}");
}

#[test]
fn the_latency_of_a_function_is_a_target_or_a_limit() {
    let text = |latency: &str, more: &str| {
        format!(
            "schema = 1\nsubsystem = \"module:made_up:queue\"\n[target]\nlatency = {latency}\nwindow = \"1s\"\n\
             timeout = \"5s\"\n{more}"
        )
    };
    let p99 = "{ function = \"vfs_read\", percentile = 99 }";
    let limit =
        "[[constraint]]\nname = \"slowest\"\nlatency = { function = \"vfs_read\", percentile = 100 }\nat_most = 5\n";
    let job = read_module(&text(p99, limit)).unwrap();
    assert_eq!(job.target.goal, crate::history::Goal::Minimise);
    let words =
        "1 s; target = nanoseconds that 99 % of the calls of vfs_read() take; slowest = nanoseconds that 100 % of \
                 the calls of vfs_read() take";
    assert_eq!(job.target.words(), words);
    for (latency, more, words) in [
        ("{ function = \"f\", percentile = 0 }", "", "percentile = 0 must be above 0"),
        ("{ function = \"f\", percentile = 100.5 }", "", "percentile = 100.5 must be above 0, and at most 100"),
        ("{ function = \"f\" }", "", "missing field `percentile`"),
        (p99, "measure = \"number\"\n", "leave other sources, and `measure`, out"),
        (p99, "socket = \"/x\"\n", "leave other sources, and `measure`, out"),
        (p99, "module = \"made_up:queue\"\n", "not both"),
    ] {
        let error = read_module(&text(latency, more)).unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_command_may_use_braces_of_the_shell() {
    let command = "command = { get = \"awk '{print $1}' /sys/block/{disk}/stat\", set = \"echo ${VALUE} > /x\" }";
    let disk = DISK.replace("file = \"/sys/block/{disk}/queue/iosched/read_expire\"", command);
    let job = read(SEARCH, &disk).unwrap();
    let get = "awk '{print $1}' /sys/block/sda/stat".to_owned();
    let set = "echo ${VALUE} > /x".to_owned();
    assert_eq!(job.parameters[1].backing, Backing::Plain(Plain::Command { get, set }));
}
