use std::collections::HashMap;
use std::fmt::Write;
use std::time::Duration;

use crate::contest::recording::{Hold, Mark, MarkKind, Recording};
use crate::contest::referee::Tally;
use crate::contest::report::{grouped, plural};
use crate::contest::scenario::Plan;
use crate::duration::shown;

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 96.0;
const RIGHT: f64 = 28.0;
const PLOT: f64 = WIDTH - LEFT - RIGHT;
/// From the top of a section to its first row.
const HEAD: f64 = 84.0;
/// From its last row to its end.
const FOOT: f64 = 40.0;
const LEGEND: f64 = 52.0;

/// The most stays that are drawn one by one: beyond that they are too close to tell apart.
const MOST_HOLDS: usize = 300;
const MOST_ROWS: usize = 64;
/// The smallest width that the eye can see.
const PIXEL: f64 = 1.0;
/// What gives up a pixel to be told from its neighbour.
const WIDE: f64 = 4.0;

const HELD: &str = "#3b76b5";
const MERGED: &str = "#a9c6e3";
const OVERLAP: &str = "#d62728";
const REJECTED: &str = "#111111";
const ACCEPTED: &str = "#a100c2";
const PAUSED: &str = "#e08a00";
const KILLED: &str = "#111111";

/// One contest as a picture, to be put below others.
pub(crate) struct Section {
    svg: String,
    height: f64,
    /// Workers were paused or killed.
    has_faults: bool,
}

/// Puts sections below each other, under one legend: a whole SVG that needs nothing else.
pub(crate) fn picture(sections: &[Section]) -> String {
    let height = LEGEND + sections.iter().map(|section| section.height).sum::<f64>();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" font-family=\"system-ui, 'Segoe UI', 'DejaVu Sans', Arial, sans-serif\" font-size=\"12\" \
         fill=\"#222222\">\n<title>leasehold contest: who held the lease when</title>\n<rect width=\"{WIDTH}\" \
         height=\"{height}\" fill=\"#ffffff\"/>\n"
    );
    svg.push_str(&legend(sections.iter().any(|section| section.has_faults)));
    let mut top = LEGEND;
    for section in sections {
        let _ = writeln!(svg, "<g transform=\"translate(0 {top})\">\n{}</g>", section.svg);
        top += section.height;
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws one contest.
pub(crate) fn section(plan: &Plan, store: &str, tally: &Tally) -> Section {
    let nothing = Recording::default();
    let recording = tally.recording.as_ref().unwrap_or(&nothing);
    let window = Window::of(recording, tally.elapsed.max(Duration::from_millis(1)));
    let rows = plan.workers.min(MOST_ROWS);
    let row = (780.0 / rows as f64).clamp(14.0, 26.0);
    let mut drawing = Drawing { svg: String::new(), window, rows, row };
    drawing.headings(plan, store, tally, recording);
    drawing.grid();
    drawing.holds();
    drawing.pauses(recording.pauses());
    drawing.marks(recording.marks());
    let height = HEAD + rows as f64 * row + FOOT;
    Section { svg: drawing.svg, height, has_faults: tally.counts.pauses + tally.counts.kills > 0 }
}

/// The part of the contest that is shown.
struct Window {
    from: Duration,
    to: Duration,
    /// The stays in it, in the order of their beginnings.
    holds: Vec<Hold>,
    whole: bool,
}

impl Window {
    /// All of it, if its stays can be told apart; else those around the first incident, or in the middle of what was
    /// kept.
    fn of(recording: &Recording, elapsed: Duration) -> Self {
        let holds = recording.holds();
        if recording.holds_in_all() <= MOST_HOLDS as u64 {
            return Self { from: Duration::ZERO, to: elapsed, holds, whole: true };
        }
        let center = match recording.first_incident() {
            Some(incident) => holds.partition_point(|hold| hold.from < incident),
            None => holds.len() / 2,
        };
        let first = center.saturating_sub(MOST_HOLDS / 2).min(holds.len() - MOST_HOLDS);
        let holds = holds[first..first + MOST_HOLDS].to_vec();
        let from = holds[0].from;
        let to = holds.iter().map(|hold| hold.to).max().unwrap_or(from).max(from + Duration::from_nanos(1));
        Self { from, to, holds, whole: false }
    }

    fn x(&self, at: Duration) -> f64 {
        let span = (self.to - self.from).as_secs_f64();
        LEFT + PLOT * (at.saturating_sub(self.from).as_secs_f64() / span).min(1.0)
    }
}

struct Drawing {
    svg: String,
    window: Window,
    rows: usize,
    row: f64,
}

impl Drawing {
    fn headings(&mut self, plan: &Plan, store: &str, tally: &Tally, recording: &Recording) {
        let Plan { scenario, workers, length, ttl, hold } = plan;
        let counts = tally.counts;
        let hold = if hold.is_zero() { "entry and exit alone".to_owned() } else { shown(*hold) };
        let title = format!(
            "{}: {workers} {} for {} on {store}, lease {}, hold {hold}",
            scenario.name(),
            plural(*workers as u64, "worker"),
            shown(*length),
            shown(*ttl)
        );
        self.text(LEFT, 18.0, "font-size=\"15\" font-weight=\"bold\"", &title);
        let by_pause = match counts.overlaps_by_pause {
            0 => String::new(),
            overlaps => format!(" and {} by a pause", grouped(overlaps)),
        };
        let summary = format!(
            "{} {}, {} {}{by_pause}, {} stale {} refused, {} accepted, {} {} lost",
            grouped(counts.acquisitions),
            plural(counts.acquisitions, "acquisition"),
            grouped(counts.overlaps),
            plural(counts.overlaps, "overlap"),
            grouped(counts.stale_writes_rejected),
            plural(counts.stale_writes_rejected, "write"),
            grouped(counts.stale_writes_accepted),
            grouped(counts.leases_lost),
            plural(counts.leases_lost, "lease"),
        );
        self.text(LEFT, 37.0, "", &summary);
        let mut note = Vec::new();
        if !self.window.whole {
            let around = match recording.first_incident() {
                Some(_) => ", around the first overlap, refused write or kill",
                None => "",
            };
            note.push(format!(
                "Shown: {} of {} stays{around} ({} of {}). Stays closer than a pixel are merged.",
                self.window.holds.len(),
                grouped(recording.holds_in_all()),
                length_of(self.window.to - self.window.from),
                length_of(tally.elapsed)
            ));
        }
        if plan.workers > self.rows {
            note.push(format!("Shown: the first {} of {} workers.", self.rows, grouped(plan.workers as u64)));
        }
        self.text(LEFT, 55.0, "fill=\"#666666\"", &note.join(" "));
    }

    /// The rows with their names, and the axis of time.
    fn grid(&mut self) {
        let bottom = HEAD + self.rows as f64 * self.row;
        for row in 0..self.rows {
            let top = self.top(row);
            if row % 2 == 0 {
                let _ = writeln!(
                    self.svg,
                    "<rect x=\"{LEFT}\" y=\"{top:.1}\" width=\"{PLOT}\" height=\"{:.1}\" fill=\"#f4f5f7\"/>",
                    self.row
                );
            }
            let baseline = top + self.row / 2.0 + 4.0;
            self.text(LEFT - 10.0, baseline, "text-anchor=\"end\"", &format!("worker {}", row + 1));
        }
        let scale = Scale::of(self.window.from, self.window.to);
        for (at, label) in scale.ticks() {
            let x = self.window.x(at);
            let _ = writeln!(
                self.svg,
                "<path d=\"M{x:.1} {:.1}V{:.1}\" stroke=\"#c9ccd1\" stroke-width=\"1\"/>",
                HEAD - 4.0,
                bottom + 5.0
            );
            self.text(x, bottom + 19.0, "text-anchor=\"middle\" fill=\"#444444\"", &label);
        }
    }

    fn holds(&mut self) {
        let overlaps = overlaps(&self.window.holds);
        let bands = self.merged(overlaps.iter().copied());
        let mut band = String::new();
        for Segment { from, to, .. } in bands {
            let height = self.rows as f64 * self.row;
            let _ = write!(band, "M{from:.1} {HEAD}h{:.1}v{height:.1}h-{0:.1}z", to - from);
        }
        self.path(&band, OVERLAP, "fill-opacity=\"0.12\"");

        let (mut held, mut merged, mut overlapping) = (String::new(), String::new(), String::new());
        for row in 0..self.rows {
            let own: Vec<_> = self.window.holds.iter().filter(|hold| hold.worker == row).copied().collect();
            for segment in self.merged(own.iter().map(|hold| (hold.from, hold.to))) {
                self.bar(if segment.stays > 1 { &mut merged } else { &mut held }, row, segment);
            }
            for segment in self.merged(own.iter().flat_map(|hold| common(hold, &overlaps))) {
                self.bar(&mut overlapping, row, segment);
            }
        }
        self.path(&merged, MERGED, "");
        self.path(&held, HELD, "");
        self.path(&overlapping, OVERLAP, "");
    }

    fn pauses(&mut self, pauses: &[Hold]) {
        let mut path = String::new();
        for &Hold { worker, from, to } in pauses {
            if worker < self.rows && from < self.window.to && to > self.window.from {
                let (from, to) = (self.window.x(from), self.window.x(to));
                let top = self.top(worker) + self.row - 3.5;
                let _ = write!(path, "M{from:.1} {top:.1}h{:.1}v3h-{0:.1}z", to - from);
            }
        }
        self.path(&path, PAUSED, "");
    }

    fn marks(&mut self, marks: &[Mark]) {
        /// Closer than this, two marks of a kind are one.
        const APART: f64 = 3.0;
        let (mut rejected, mut accepted, mut killed) = (String::new(), String::new(), String::new());
        let mut latest: HashMap<(usize, MarkKind), f64> = HashMap::new();
        for &Mark { worker, at, kind } in marks {
            if worker >= self.rows || !(self.window.from..=self.window.to).contains(&at) {
                continue;
            }
            let x = self.window.x(at);
            match latest.insert((worker, kind), x) {
                Some(before) if x - before < APART => continue,
                _ => {}
            }
            let y = self.top(worker) + self.row / 2.0;
            let _ = match kind {
                MarkKind::Rejected => write!(rejected, "M{:.1} {:.1}l8 8m0 -8l-8 8", x - 4.0, y - 4.0),
                MarkKind::StaleAccepted => write!(accepted, "M{x:.1} {:.1}l6 6l-6 6l-6 -6z", y - 6.0),
                MarkKind::Killed => write!(killed, "M{:.1} {:.1}h10l-5 9z", x - 5.0, y - 5.0),
            };
        }
        // A halo first, so that a cross is seen on any colour.
        for (colour, width) in [("#ffffff", 5.0), (REJECTED, 2.2)] {
            if !rejected.is_empty() {
                let _ = writeln!(
                    self.svg,
                    "<path d=\"{rejected}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" \
                     stroke-linecap=\"round\"/>"
                );
            }
        }
        self.path(&accepted, ACCEPTED, "stroke=\"#ffffff\"");
        self.path(&killed, KILLED, "stroke=\"#ffffff\"");
    }

    /// Spans of time as places on the axis. Those closer than a pixel are one, unless both are wide enough to be seen
    /// apart.
    fn merged(&self, spans: impl Iterator<Item = (Duration, Duration)>) -> Vec<Segment> {
        let mut segments: Vec<Segment> = Vec::new();
        for (from, to) in spans {
            let from = self.window.x(from);
            let to = self.window.x(to).max(from + PIXEL);
            match segments.last_mut() {
                Some(last) if from - last.to < PIXEL && (last.to - last.from).min(to - from) >= WIDE => {
                    last.to = from - PIXEL;
                    segments.push(Segment { from, to, stays: 1 });
                }
                Some(last) if from - last.to < PIXEL => {
                    last.to = last.to.max(to);
                    last.stays += 1;
                }
                _ => segments.push(Segment { from, to, stays: 1 }),
            }
        }
        segments
    }

    fn bar(&self, path: &mut String, row: usize, Segment { from, to, .. }: Segment) {
        let inset = self.row * 0.18;
        let height = self.row - 2.0 * inset;
        let _ = write!(path, "M{from:.1} {:.1}h{:.1}v{height:.1}h-{1:.1}z", self.top(row) + inset, to - from);
    }

    fn path(&mut self, path: &str, fill: &str, attributes: &str) {
        if !path.is_empty() {
            let _ = writeln!(self.svg, "<path d=\"{path}\" fill=\"{fill}\" {attributes}/>");
        }
    }

    fn text(&mut self, x: f64, y: f64, attributes: &str, text: &str) {
        if !text.is_empty() {
            let _ = writeln!(self.svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>", escaped(text));
        }
    }

    fn top(&self, row: usize) -> f64 {
        HEAD + row as f64 * self.row
    }
}

/// Something on the axis, in pixels.
#[derive(Debug, Clone, Copy)]
struct Segment {
    from: f64,
    to: f64,
    stays: usize,
}

/// When two or more were in at once.
fn overlaps(holds: &[Hold]) -> Vec<(Duration, Duration)> {
    // At one moment, who leaves does so before who enters.
    let mut steps: Vec<_> = holds.iter().flat_map(|hold| [(hold.from, 1), (hold.to, -1)]).collect();
    steps.sort_unstable();
    let (mut inside, mut since, mut spans) = (0, Duration::ZERO, Vec::new());
    for (at, step) in steps {
        inside += step;
        match (step, inside) {
            (1, 2) => since = at,
            (-1, 1) => spans.push((since, at)),
            _ => {}
        }
    }
    spans
}

/// The parts of a stay that fall into one of the spans.
fn common(hold: &Hold, spans: &[(Duration, Duration)]) -> impl Iterator<Item = (Duration, Duration)> {
    let Hold { worker: _, from, to } = *hold;
    let first = spans.partition_point(|&(_, end)| end <= from);
    spans[first..]
        .iter()
        .take_while(move |&&(start, _)| start < to)
        .map(move |&(start, end)| (start.max(from), end.min(to)))
}

/// Where the axis has its ticks, and how they read.
struct Scale {
    step: f64,
    from: f64,
    to: f64,
}

impl Scale {
    fn of(from: Duration, to: Duration) -> Self {
        const TICKS: f64 = 8.0;
        let rough = (to - from).as_secs_f64() / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&step| step >= rough);
        Self { step: step.unwrap_or(rough), from: from.as_secs_f64(), to: to.as_secs_f64() }
    }

    fn ticks(&self) -> impl Iterator<Item = (Duration, String)> {
        let (unit, factor) = if self.step >= 0.1 { ("s", 1.0) } else { ("ms", 1e3) };
        let decimals = (-(self.step * factor).log10()).ceil().max(0.0) as usize;
        let first = (self.from / self.step).ceil() as u64;
        let last = (self.to / self.step + 1e-9).floor() as u64;
        (first..=last).map(move |tick| {
            let at = tick as f64 * self.step;
            (Duration::from_secs_f64(at), format!("{:.decimals$} {unit}", at * factor))
        })
    }
}

fn legend(faults: bool) -> String {
    let mut svg = String::new();
    let mut x = LEFT;
    let mut entry = |symbol: &str, text: &str| {
        let _ = writeln!(svg, "<g transform=\"translate({x} 22)\">{symbol}<text x=\"24\" y=\"4\">{text}</text></g>");
        x += 44.0 + 6.6 * text.len() as f64;
    };
    let block = |colour| format!("<rect y=\"-6\" width=\"16\" height=\"12\" fill=\"{colour}\"/>");
    entry(&block(HELD), "is in");
    entry(&block(MERGED), "several stays within a pixel");
    entry(&block(OVERLAP), "two are in at once");
    let cross = format!("<path d=\"M4 -4l8 8m0 -8l-8 8\" stroke=\"{REJECTED}\" stroke-width=\"2.2\" fill=\"none\"/>");
    entry(&cross, "its write is refused");
    entry(&format!("<path d=\"M8 -6l6 6l-6 6l-6 -6z\" fill=\"{ACCEPTED}\"/>"), "its stale write is accepted");
    if faults {
        entry(&format!("<rect y=\"-2\" width=\"16\" height=\"3\" fill=\"{PAUSED}\"/>"), "is paused");
        entry(&format!("<path d=\"M3 -5h10l-5 9z\" fill=\"{KILLED}\"/>"), "is killed");
    }
    svg
}

/// A length of time to three digits or so.
fn length_of(span: Duration) -> String {
    match span.as_secs_f64() {
        ..1e-3 => format!("{:.0} µs", span.as_secs_f64() * 1e6),
        ..1.0 => format!("{:.1} ms", span.as_secs_f64() * 1e3),
        seconds => format!("{seconds:.2} s"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(worker: usize, from: u64, to: u64) -> Hold {
        Hold { worker, from: Duration::from_micros(from), to: Duration::from_micros(to) }
    }

    #[test]
    fn overlaps_are_where_two_or_more_are_in() {
        let micros = |(from, to): (Duration, Duration)| (from.as_micros(), to.as_micros());
        let holds = [hold(0, 0, 10), hold(1, 10, 30), hold(2, 20, 40), hold(0, 25, 28), hold(1, 50, 60)];
        let spans: Vec<_> = overlaps(&holds).into_iter().map(micros).collect();
        assert_eq!(spans, [(20, 30)], "one that leaves as another enters is none");
        let parts: Vec<_> = common(&holds[2], &overlaps(&holds)).map(micros).collect();
        assert_eq!(parts, [(20, 30)]);
    }

    #[test]
    fn ticks_read_well() {
        let labels = |from, to| {
            let ticks = Scale::of(Duration::from_micros(from), Duration::from_micros(to));
            ticks.ticks().map(|(_, label)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(0, 5_000_000), ["0 s", "1 s", "2 s", "3 s", "4 s", "5 s"]);
        assert_eq!(labels(2_411_000, 2_415_100)[..2], ["2411 ms", "2412 ms"]);
        assert_eq!(labels(1_000, 1_400)[..2], ["1.00 ms", "1.05 ms"]);
    }

    #[test]
    fn a_picture_of_very_many_stays_is_small_and_says_what_it_leaves_out() {
        use leasehold::fence::FencedCell;

        use crate::contest::referee::Referee;
        use crate::contest::scenario::Scenario;

        let scenario = Scenario::Mutex;
        let (ttl, hold_for) = (scenario.default_ttl(), scenario.default_hold());
        let plan = Plan { scenario, workers: 1000, length: Duration::from_secs(5), ttl, hold: hold_for };
        let mut tally = Referee::new(&plan, FencedCell::new(0), true).finish();
        let recording = tally.recording.as_mut().unwrap();
        for number in 0..200_000u64 {
            recording.hold(hold(number as usize % 1000, number * 10, number * 10 + 1));
        }
        tally.elapsed = Duration::from_secs(2);
        let svg = picture(&[section(&plan, "memory://?a=1&b=<2>", &tally)]);
        assert!(svg.len() < 100_000, "{} bytes", svg.len());
        let svg = roxmltree::Document::parse(&svg).unwrap();
        let text: String = svg.descendants().filter_map(|node| node.text()).collect();
        assert!(text.contains("300 of 200,000 stays") && text.contains("merged"), "{text}");
        assert!(text.contains("the first 64 of 1,000 workers"), "{text}");
        assert!(text.contains("memory://?a=1&b=<2>"), "{text}");
    }
}
