//! Engines against made-up surfaces with stated noise, and against themselves: what comes out is the same every
//! time. Nothing here says anything about a kernel.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod common;

use common::{dimension, disk};
use xk_tuner::engine::{propose, Engine, Exhaustive, Ground, Orthogonal, OrthogonalFull, Proposal, Racing, Remembered};
use xk_tuner::front::front;
use xk_tuner::history::{Goal, Objective, Order, Outcome, Record, Sample};
use xk_tuner::replay::{check, play, play_paper, Noise, Recorded, Surface};
use xk_tuner::{Dimension, Guard, Point, Space};

const LIMIT: usize = 200;

/// Best at scheduler 1, expire 4, read ahead 7, requests 4; read ahead counts for more with scheduler 1.
fn height(point: &Point) -> f64 {
    let [scheduler, expire, ahead, requests] = point.0[..] else { panic!() };
    let with = if scheduler == 1 { 1.0 + 0.05 * expire as f64 + 0.05 * ahead as f64 } else { 1.0 };
    100.0 * with * (1.0 + 0.08 * ahead as f64) * (1.0 - 0.03 * (requests as f64 - 4.0).powi(2))
}

fn optimum(space: &Space) -> f64 {
    space.all().iter().map(height).fold(0.0, f64::max)
}

fn racing(seed: u64) -> Racing {
    Racing::new(seed, 0.02)
}

fn run(engine: &dyn Engine, noise: Noise, seed: u64) -> (Vec<Record>, Point, Ground) {
    let space = disk();
    let (history, end) = play(engine, &space, Goal::Maximise, LIMIT, &mut Surface::new(height, noise, seed)).unwrap();
    (history, end.best, end.ground)
}

#[test]
fn without_noise_all_find_the_optimum_in_a_quarter_of_the_grid() {
    let space = disk();
    let grid = space.all().len();
    for engine in [&racing(1) as &dyn Engine, &Orthogonal, &OrthogonalFull::default()] {
        let (history, best, _) = run(engine, Noise::Normal(0.0), 1);
        assert!(height(&best) >= 0.95 * optimum(&space), "{}: {}", engine.name(), space.describe(&best));
        assert!(history.len() * 4 <= grid, "{}: {} trials, the grid has {grid} points", engine.name(), history.len());
    }
    let mut surface = Surface::new(height, Noise::Normal(0.0), 1);
    let (history, end) = play(&Exhaustive, &space, Goal::Maximise, 10_000, &mut surface).unwrap();
    // The best is measured five times.
    assert_eq!((height(&end.best), history.len()), (optimum(&space), grid - 1 + 4));
    let (alone, repeats) = (|record: &Record| record.trial.order == Order::Alone, &history[grid - 1..]);
    assert!(history.iter().filter(|record| alone(record)).count() > grid * 9 / 10 && !repeats.iter().any(alone));
}

#[test]
fn the_best_of_a_whole_grid_is_not_the_luckiest() {
    let space = disk();
    let worth = |seed| {
        let mut surface = Surface::new(height, Noise::HeavyTailed(0.05), seed);
        let (history, end) = play(&Exhaustive, &space, Goal::Maximise, 10_000, &mut surface).unwrap();
        assert!(history.len() < space.all().len() + 8 * 4, "{} trials", history.len());
        let first = |record: &Record| match &record.outcome {
            Outcome::Measured(sample) => (sample.effect(Goal::Maximise), record.trial.point.clone()),
            outcome => panic!("{outcome:?}"),
        };
        let once = history[..space.all().len() - 1].iter().map(first);
        let luckiest = once.max_by(|(a, _), (b, _)| a.total_cmp(b)).unwrap().1;
        [height(&end.best), height(&luckiest)]
    };
    let sums = (0..40).map(worth).fold([0.0, 0.0], |sums, worth| [sums[0] + worth[0], sums[1] + worth[1]]);
    let [best, luckiest] = sums.map(|sum| sum / 40.0 / optimum(&space));
    eprintln!("of the optimum: {best}; the luckiest: {luckiest}");
    assert!(best > luckiest + 0.02, "{best} and {luckiest}");
}

#[test]
fn what_takes_two_changes_is_found() {
    let space = disk();
    // Scheduler 2 and small reads ahead: neither does anything by itself, and the smallest is not the best.
    let both = |point: &Point| match point.0[..] {
        [2, _, 0, _] => 115.0,
        [2, _, 1, _] => 130.0,
        _ => 100.0,
    };
    let found = |engine: &dyn Engine, seed| {
        let mut surface = Surface::new(both, Noise::Normal(0.005), seed);
        let (history, end) = play(engine, &space, Goal::Maximise, LIMIT, &mut surface).unwrap();
        (both(&end.best), history.len())
    };
    for seed in 0..20 {
        let (ours, trials) = found(&racing(seed), seed);
        assert_eq!(ours, 130.0, "seed {seed}");
        assert!(trials * 4 <= space.all().len(), "{trials} trials of {}", space.all().len());
    }
    assert_eq!(found(&Orthogonal, 1).0, 100.0);
}

#[test]
fn a_choice_is_tried_together_with_what_it_opens() {
    let space = disk();
    // Scheduler 1 alone is worse than the default, and twice as good with expire 4.
    let valley = |point: &Point| match point.0[..] {
        [1, 4, ..] => 200.0,
        [1, ..] => 90.0,
        _ => 100.0,
    };
    let found = |engine: &dyn Engine| {
        let mut surface = Surface::new(valley, Noise::Normal(0.01), 3);
        valley(&play(engine, &space, Goal::Maximise, LIMIT, &mut surface).unwrap().1.best)
    };
    assert_eq!((found(&racing(3)), found(&Orthogonal)), (200.0, 100.0));
}

/// The paper, section 1: "for each policy, it searches through different values of the parameters".
#[test]
fn the_papers_search_finds_a_choice_that_helps_only_with_its_parameters() {
    let space = disk();
    // Scheduler 1 is worse than the default, until its own parameter grows; the other parameters do nothing.
    let slope = |point: &Point| match point.0[..] {
        [1, expire, ..] => 90.0 + 30.0 * (expire as f64 - 2.0),
        _ => 100.0,
    };
    let found = |engine: &dyn Engine| {
        let mut surface = Surface::new(slope, Noise::Normal(0.0), 3);
        let (history, end) = play(engine, &space, Goal::Maximise, LIMIT, &mut surface).unwrap();
        (slope(&end.best), history)
    };
    let (full, trials) = found(&OrthogonalFull::default());
    assert_eq!((full, found(&Orthogonal).0, found(&racing(3)).0), (150.0, 100.0, 150.0));
    // Every policy is tried with each of the parameters that are active in it, from their defaults.
    let tried = |scheduler: usize, dimension: usize| {
        let default = space.default_point();
        let of_scheduler = trials.iter().filter(|record| record.trial.point.0[0] == scheduler);
        of_scheduler.filter(|record| record.trial.point.0[dimension] != default.0[dimension]).count()
    };
    for scheduler in 0..3 {
        assert!(tried(scheduler, 2) >= 2 && tried(scheduler, 3) >= 2, "scheduler {scheduler}");
        assert_eq!(tried(scheduler, 1) > 0, scheduler == 1, "its parameter is active only with scheduler 1");
    }
}

/// The choice is nothing without a parameter that is active always.
#[test]
fn the_papers_search_finds_a_choice_that_helps_only_with_a_general_parameter() {
    let space = disk();
    let slope = |point: &Point| match point.0[..] {
        [2, _, ahead, _] if ahead < 3 => 100.0 + 10.0 * (3 - ahead) as f64,
        [0, ..] => 100.0,
        _ => 99.0,
    };
    let found = |engine: &dyn Engine| {
        let mut surface = Surface::new(slope, Noise::Normal(0.0), 3);
        slope(&play(engine, &space, Goal::Maximise, LIMIT, &mut surface).unwrap().1.best)
    };
    assert_eq!((found(&OrthogonalFull::default()), found(&Orthogonal)), (130.0, 100.0));
}

#[test]
fn without_guards_both_readings_of_the_paper_are_the_same() {
    let guarded = disk();
    let free = guarded.dimensions().iter().map(|one| Dimension { guard: None, ..one.clone() });
    let space = Space::new(free.collect()).unwrap();
    let searched = |engine: &dyn Engine| {
        let mut surface = Surface::new(height, Noise::Normal(0.1), 3);
        play(engine, &space, Goal::Maximise, LIMIT, &mut surface).unwrap()
    };
    assert_eq!(searched(&Orthogonal), searched(&OrthogonalFull::default()));
}

/// Policies of a policy: the second choice exists with one level of the first only.
#[test]
fn policies_that_depend_on_a_policy_are_enumerated_where_they_exist() {
    let mut second = dimension("second", 2, false, 0);
    second.guard = Some(Guard { dimension: 0, levels: vec![1] });
    let mut number = dimension("number", 3, true, 0);
    number.guard = Some(Guard { dimension: 1, levels: vec![1] });
    let space = Space::new(vec![dimension("first", 2, false, 0), second, number]).unwrap();
    let peak = |point: &Point| match point.0[..] {
        [1, 1, number] => 80.0 + 20.0 * number as f64,
        [1, ..] => 90.0,
        _ => 100.0,
    };
    let mut surface = Surface::new(peak, Noise::Normal(0.0), 1);
    let (history, end) = play(&OrthogonalFull::default(), &space, Goal::Maximise, LIMIT, &mut surface).unwrap();
    assert_eq!(end.best, Point(vec![1, 1, 2]));
    let tried: Vec<&[usize]> = history.iter().map(|record| &record.trial.point.0[..]).collect();
    assert_eq!(tried, [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1], [1, 1, 2]]);
}

#[test]
fn the_papers_search_gets_as_many_trials_as_it_is_given() {
    let space = disk();
    let searched =
        |trials| play_paper(&space, Goal::Maximise, trials, || Surface::new(height, Noise::Normal(0.0), 3)).unwrap();
    let once = searched(0).0.len();
    for trials in [once, 3 * once - 1, 3 * once, 200] {
        assert_eq!(searched(trials).0.len(), trials / once * once, "{trials} trials");
    }
    // More measurements of each setting find more.
    let share = |trials| {
        let found = (0..60).map(|seed| {
            let source = || Surface::new(height, Noise::Normal(0.15), 1000 + seed);
            height(&play_paper(&space, Goal::Maximise, trials, source).unwrap().1.best) / optimum(&space)
        });
        found.sum::<f64>() / 60.0
    };
    let [few, many] = [share(once), share(8 * once)];
    eprintln!("{few:.3} of the optimum with {once} trials, {many:.3} with {}", 8 * once);
    assert!(many > few + 0.02, "{few} and {many}");
}

/// Mean share of the optimum over many searches.
fn share(engine: impl Fn(u64) -> Box<dyn Engine>, noise: Noise) -> f64 {
    let space = disk();
    let found = (0..60).map(|seed| height(&run(&*engine(seed), noise, 1000 + seed).1) / optimum(&space));
    found.sum::<f64>() / 60.0
}

#[test]
fn with_noise_racing_finds_more_than_the_papers_search() {
    for noise in [Noise::Normal(0.08), Noise::Normal(0.15), Noise::HeavyTailed(0.05), Noise::Wandering(0.05)] {
        let racing = share(|seed| Box::new(racing(seed)), noise);
        let orthogonal = share(|_| Box::new(Orthogonal), noise);
        let paper = paper_share(noise, <[Record]>::len);
        eprintln!(
            "{noise:?}: racing {racing:.3}, the paper's search {orthogonal:.3} of the optimum with one measurement of each \
             setting (section 5 alone), {paper:.3} with as many trials as racing"
        );
        assert!(racing > orthogonal, "{noise:?}: racing {racing:.3}, orthogonal {orthogonal:.3}");
        assert!(racing > paper, "{noise:?}: racing {racing:.3}, the paper's search {paper:.3} with as many trials");
    }
    // A trial of racing takes two or three windows, and one of the paper's needs no more than one.
    let windows = |history: &[Record]| {
        history.iter().map(|record| if record.trial.order == Order::Bracketed { 3 } else { 2 }).sum()
    };
    let paper = paper_share(Noise::Normal(0.08), windows);
    eprintln!("Normal(0.08): the paper's search {paper:.3}, with as many trials as racing has windows");
}

/// Mean share of the optimum that the paper's search finds with the trials that `budget` permits beside racing's.
fn paper_share(noise: Noise, budget: impl Fn(&[Record]) -> usize) -> f64 {
    let space = disk();
    let found = (0..60).map(|seed| {
        let trials = budget(&run(&racing(seed), noise, 1000 + seed).0);
        let source = || Surface::new(height, noise, 1000 + seed);
        height(&play_paper(&space, Goal::Maximise, trials, source).unwrap().1.best) / optimum(&space)
    });
    found.sum::<f64>() / 60.0
}

#[test]
fn noise_alone_is_promoted_once_in_a_hundred_searches_at_most() {
    let space = disk();
    for noise in [
        Noise::Normal(0.02),
        Noise::Normal(0.2),
        Noise::HeavyTailed(0.05),
        Noise::Wandering(0.05),
        Noise::Drifting(0.02),
    ] {
        let promoted = (0..1000).filter(|&seed| {
            let mut flat = Surface::new(|_: &Point| 100.0, noise, seed);
            let (_, end) = play(&racing(seed), &space, Goal::Maximise, LIMIT, &mut flat).unwrap();
            end.best != space.default_point()
        });
        let promoted = promoted.count();
        eprintln!("{noise:?}: {promoted} of 1000");
        assert!(promoted <= 10, "{noise:?}: {promoted} of 1000");
    }
}

#[test]
fn a_history_is_gone_on_with_wherever_it_was_cut() {
    let space = disk();
    for engine in [&racing(5) as &dyn Engine, &Orthogonal, &OrthogonalFull { repeats: 2 }, &Exhaustive] {
        let (history, best, _) = run(engine, Noise::Normal(0.05), 5);
        for cut in 0..history.len() {
            let (_, next) = check(engine, &space, Goal::Maximise, &history[..cut], LIMIT).unwrap();
            assert_eq!(next, Proposal::Try(history[cut].trial.clone()), "{} at {cut}", engine.name());
        }
        match propose(engine, &space, Goal::Maximise, &history, LIMIT).unwrap() {
            Proposal::Done(end) => assert_eq!(end.best, best),
            Proposal::Try(trial) => panic!("{} goes on with {trial:?}", engine.name()),
        }
    }
}

#[test]
fn the_history_of_another_search_is_noticed() {
    let (mut history, ..) = run(&racing(5), Noise::Normal(0.0), 5);
    history.swap(0, 1);
    assert!(check(&racing(5), &disk(), Goal::Maximise, &history, LIMIT).is_err_and(|diverged| diverged.at == 0));
}

#[test]
fn what_failed_or_is_forbidden_is_not_chosen_and_not_tried_again() {
    let mut space = disk();
    // The optimum is forbidden, and everything with scheduler 2 fails.
    space.forbidden.insert(Point(vec![1, 4, 7, 4]));
    let mut history: Vec<Record> = Vec::new();
    let mut surface = Surface::new(height, Noise::Normal(0.0), 1);
    let end = loop {
        match propose(&racing(1), &space, Goal::Maximise, &history, LIMIT).unwrap() {
            Proposal::Done(end) => break end,
            Proposal::Try(trial) if trial.point.0[0] == 2 => {
                let outcome = Outcome::failed("Invalid argument");
                history.push(Record { trial, outcome });
            }
            Proposal::Try(trial) => {
                assert!(!space.forbidden.contains(&trial.point));
                let replayed = |source: &mut Surface<_>| {
                    use xk_tuner::replay::Source;
                    let default = source.window(&space.default_point()).unwrap();
                    xk_tuner::history::Sample {
                        default: vec![default],
                        value: source.window(&trial.point).unwrap(),
                        ..Default::default()
                    }
                };
                let outcome = Outcome::Measured(replayed(&mut surface));
                history.push(Record { trial, outcome });
            }
        }
    };
    let failed: Vec<&Point> = history
        .iter()
        .filter(|record| matches!(record.outcome, Outcome::Failed { .. }))
        .map(|record| &record.trial.point)
        .collect();
    assert!(
        !failed.is_empty() && failed.iter().all(|point| failed.iter().filter(|other| other == &point).count() == 1)
    );
    // The best of what is left is two steps away from a neighbour of the forbidden point.
    assert!(height(&end.best) >= 0.9 * optimum(&disk()) && end.best.0[0] == 1, "{}", space.describe(&end.best));
}

#[test]
fn what_is_remembered_is_confirmed_again_if_it_holds_and_is_doubted_if_not() {
    let space = disk();
    let point = Point(vec![1, 4, 7, 4]);
    let effect = (height(&point) / height(&space.default_point())).ln();
    let warm = |effect| Racing { warm: Some(Remembered { point: point.clone(), effect }), ..racing(1) };
    let (history, best, ground) = run(&warm(effect), Noise::Normal(0.02), 1);
    // As many pairs as a part of the error level demands, and no other trial.
    assert_eq!((history.len(), &best), (13, &point));
    assert!(history.iter().all(|record| record.trial.order != Order::Bracketed));
    assert!(matches!(ground, Ground::Remembered { p: Some(p), interval: Some(_), .. } if p <= 1.0 / 4096.0));
    // It was worth three times as much when it was remembered: this is another workload.
    let (history, _, ground) = run(&warm(3.0 * effect), Noise::Normal(0.02), 1);
    assert!(history.len() > 1 && matches!(ground, Ground::Confirmed { .. }), "{ground:?}");
}

#[test]
fn a_recorded_grid_answers_other_engines() {
    let space = disk();
    let (grid, ..) = {
        let mut surface = Surface::new(height, Noise::Normal(0.01), 9);
        play(&Exhaustive, &space, Goal::Maximise, 10_000, &mut surface).unwrap()
    };
    let mut recorded = Recorded::of(&space, &grid);
    let (_, end) = play(&racing(2), &space, Goal::Maximise, LIMIT, &mut recorded).unwrap();
    assert!(height(&end.best) >= 0.95 * optimum(&space), "{}", space.describe(&end.best));
    let again = play(&racing(2), &space, Goal::Maximise, LIMIT, &mut Recorded::of(&space, &grid)).unwrap().1;
    assert_eq!(end, again);
}

/// Answers with two numbers: what leads, and what is wanted besides it.
fn with_two(engine: &dyn Engine, space: &Space, numbers: impl Fn(&Point) -> [f64; 2]) -> (Vec<Record>, Point) {
    let mut history: Vec<Record> = Vec::new();
    loop {
        let trial = match propose(engine, space, Goal::Maximise, &history, LIMIT).unwrap() {
            Proposal::Done(end) => return (history, end.best),
            Proposal::Try(trial) => trial,
        };
        let ([default, default_other], [value, other]) = (numbers(&space.default_point()), numbers(&trial.point));
        let sample = |default, value| Sample { default: vec![default; 2], value, ..Sample::default() };
        let others = [("latency".to_owned(), sample(default_other, other))].into();
        let outcome = Outcome::Measured(Sample { others, ..sample(default, value) });
        history.push(Record { trial, outcome });
    }
}

#[test]
fn each_target_is_explored_and_the_first_decides() {
    let space = disk();
    // What is better for the first is worse for the second.
    let numbers = |point: &Point| {
        let (ahead, requests) = (point.0[2] as f64, point.0[3] as f64);
        [100.0 + 10.0 * requests + 5.0 * ahead, 5.0 + ahead + 0.5 * requests]
    };
    let others = vec![Objective { name: "latency".into(), goal: Goal::Minimise }];
    let (history, best) = with_two(&Racing { others: others.clone(), ..racing(1) }, &space, numbers);
    assert_eq!(space.describe(&best), "read ahead = 7, requests = 5");
    let front = front(&space, &history, Goal::Maximise, &others, 0.02);
    let words: Vec<String> = front.iter().map(|choice| space.describe(&choice.point)).collect();
    assert_eq!(words.first().unwrap(), "read ahead = 7, requests = 5");
    assert_eq!(words.last().unwrap(), "read ahead = 0, requests = 0");
    // Whoever asks for one target does not pay for the other.
    let (alone, _) = with_two(&racing(1), &space, numbers);
    let least = Point(vec![0, 2, 0, 0]);
    assert!(history.iter().any(|record| record.trial.point == least));
    assert!(alone.len() < history.len() && alone.iter().all(|record| record.trial.point != least));
}

/// What helped before something better was found, and makes no difference beside it, goes back to its default.
#[test]
fn what_makes_no_difference_beside_the_rest_is_not_promoted() {
    let space = disk();
    let height = |point: &Point| {
        let small = if point.0[0] == 2 { 1.1 } else { 1.0 };
        let large = 1.0 + 0.1 * point.0[3].saturating_sub(2) as f64;
        let hardly = if point.0[0] == 2 { 1.003 } else { 1.0 };
        100.0 * hardly * f64::max(small, large)
    };
    let promoted = |noise, seed| {
        let mut surface = Surface::new(height, noise, seed);
        let (history, end) = play(&racing(seed), &space, Goal::Maximise, LIMIT, &mut surface).unwrap();
        (history, space.describe(&end.best))
    };
    let (history, best) = promoted(Noise::Normal(0.0), 1);
    assert!(history.iter().any(|record| record.trial.point == Point(vec![2, 2, 3, 5])), "the detour is made");
    assert_eq!(best, "requests = 5");
    let counts = (0..300).map(|seed| promoted(Noise::Normal(0.05), seed).1).filter(|best| best == "requests = 5");
    let lean = counts.count();
    eprintln!("with noise, {lean} of 300 are promoted without what makes no difference");
    assert!(lean >= 180, "{lean} of 300");
}

/// One look after 16 pairs would miss every third of these.
#[test]
fn what_noise_nearly_hides_is_confirmed_by_more_pairs() {
    let space = disk();
    let height = |point: &Point| if point.0[0] == 2 { 116.0 } else { 100.0 };
    let searches = (0..100).map(|seed| {
        let mut surface = Surface::new(height, Noise::Normal(0.1), seed);
        play(&racing(seed), &space, Goal::Maximise, LIMIT, &mut surface).unwrap()
    });
    let pairs = |history: &[Record]| history.iter().filter(|record| record.trial.order != Order::Bracketed).count();
    let found: Vec<usize> =
        searches.filter(|(_, end)| end.best.0[0] == 2).map(|(history, _)| pairs(&history)).collect();
    let many = found.iter().filter(|&&pairs| pairs > 16).count();
    eprintln!("with noise, {} of 100 find it, {many} of them with more than 16 pairs", found.len());
    assert!(found.len() >= 90 && many >= 10, "{} of 100, {many} with more than 16 pairs", found.len());
}

/// Simplification measures points again that exploration has measured. One that violated a constraint is not among them.
#[test]
fn a_point_that_violated_a_constraint_is_not_tried_again_in_any_stage() {
    let space = disk();
    let height = |point: &Point| {
        let scheduler = if point.0[0] == 2 { 1.1 } else { 1.0 };
        100.0 * scheduler * (1.0 + 0.1 * point.0[3].saturating_sub(2) as f64)
    };
    let violates = |point: &Point| point.0[0] == 0 && point.0[3] == 5;
    for engine in [&racing(1) as &dyn Engine, &Orthogonal, &OrthogonalFull::default(), &Exhaustive] {
        let mut history: Vec<Record> = Vec::new();
        while let Proposal::Try(trial) = propose(engine, &space, Goal::Maximise, &history, 10_000).unwrap() {
            let outcome = match violates(&trial.point) {
                true => Outcome::Violated { constraint: "latency".into() },
                false => {
                    let [default, value] = [&space.default_point(), &trial.point].map(height);
                    Outcome::Measured(Sample { default: vec![default; 2], value, ..Sample::default() })
                }
            };
            history.push(Record { trial, outcome });
        }
        let mut violated: Vec<&Point> =
            history.iter().map(|record| &record.trial.point).filter(|point| violates(point)).collect();
        let count = violated.len();
        violated.sort();
        violated.dedup();
        assert_eq!(count, violated.len(), "{}: {violated:?}", engine.name());
    }
}
