//! How do lines over an axis become a drawing that any browser shows?

use std::fmt;

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 90.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;
const TICKS: usize = 5;
const COLOURS: [&str; 4] = ["#2563eb", "#d97706", "#dc2626", "#6b7280"];
/// Points of a line at most: of more, every so many are left out, the highest of each run kept.
const POINTS_MAX: usize = 1_800;

/// A line of a plot.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) name: &'static str,
    /// Across and up, in order.
    pub(super) points: Vec<(f64, f64)>,
}

/// Lines over one axis; prints as SVG.
#[derive(Debug, Clone)]
pub(super) struct Plot {
    pub(super) title: &'static str,
    /// What is told across.
    pub(super) across: &'static str,
    /// Whether the upward axis is logarithmic.
    pub(super) is_log: bool,
    pub(super) lines: Vec<Line>,
}

/// An axis: from where to where, over which stretch of the drawing.
struct Axis {
    low: f64,
    high: f64,
    is_log: bool,
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone, is_log: bool) -> Self {
        let high = values.clone().fold(f64::MIN, f64::max);
        let low = if is_log { values.filter(|value| *value > 0.0).fold(f64::MAX, f64::min) } else { 0.0 };
        let (low, high) = if low <= high { (low, high) } else { (0.1, 1.0) };
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, is_log }
    }

    /// Where a value is, from 0 to 1.
    fn at(&self, value: f64) -> f64 {
        if self.is_log {
            let (low, high) = (self.low.max(1e-9).ln(), self.high.max(1e-9).ln());
            (value.max(self.low.max(1e-9)).ln() - low) / (high - low).max(1e-9)
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    fn value(&self, at: f64) -> f64 {
        if self.is_log {
            let (low, high) = (self.low.max(1e-9).ln(), self.high.max(1e-9).ln());
            (low + at * (high - low)).exp()
        } else {
            self.low + at * (self.high - self.low)
        }
    }
}

fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let run = points.len().div_ceil(POINTS_MAX).max(1);
    let highest = |run: &[(f64, f64)]| run.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1));
    points.chunks(run).filter_map(highest).collect()
}

impl fmt::Display for Plot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.lines.iter().flat_map(|line| line.points.iter());
        let across = Axis::over(all.clone().map(|point| point.0), false);
        let up = Axis::over(all.map(|point| point.1), self.is_log);
        let x = |at: f64| LEFT + at * (WIDTH - LEFT - RIGHT);
        let y = |at: f64| HEIGHT - BOTTOM - at * (HEIGHT - TOP - BOTTOM);
        writeln!(
            f,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\" font-size=\"11\">",
            self.title
        )?;
        for tick in 0..=TICKS {
            let at = crate::progress::as_f64(tick as u64) / crate::progress::as_f64(TICKS as u64);
            let (right, label) = (WIDTH - RIGHT, shown(up.value(at)));
            writeln!(f, "<path d=\"M{LEFT} {0:.1}H{right}\" stroke=\"#e2e6ea\"/>", y(at))?;
            writeln!(f, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 6.0, y(at) + 4.0)?;
            let label = shown(across.value(at));
            writeln!(
                f,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                x(at),
                HEIGHT - BOTTOM + 16.0
            )?;
        }
        writeln!(
            f,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            x(0.5),
            HEIGHT - 6.0,
            self.across
        )?;
        for (index, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let at = |(right, high): (f64, f64)| format!("{:.1} {:.1}", x(across.at(right)), y(up.at(high)));
            let points: Vec<_> = thinned(&line.points).into_iter().map(at).collect();
            // Nothing is a path too, an empty one.
            let path = if points.is_empty() { String::new() } else { format!("M{}", points.join("L")) };
            writeln!(f, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>")?;
            let at = TOP + 14.0 + 16.0 * crate::progress::as_f64(index as u64);
            writeln!(f, "<text x=\"{:.1}\" y=\"{at:.1}\" fill=\"{colour}\">{}</text>", WIDTH - RIGHT + 8.0, line.name)?;
        }
        f.write_str("</svg>")
    }
}

fn shown(value: f64) -> String {
    match value {
        value if value >= 1e6 => format!("{:.1} M", value / 1e6),
        value if value >= 1e4 => format!("{:.0} k", value / 1e3),
        value if value >= 10.0 => format!("{value:.0}"),
        value => format!("{value:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Line, POINTS_MAX, Plot};

    fn plot(points: Vec<(f64, f64)>, is_log: bool) -> String {
        Plot { title: "it", across: "s", is_log, lines: vec![Line { name: "one", points }] }.to_string()
    }

    #[test]
    fn a_plot_is_one_drawing_whose_points_lie_inside_of_it() {
        for is_log in [false, true] {
            let text = plot((0..50).map(|at| (f64::from(at), f64::from(at * at))).collect(), is_log);
            assert!(text.starts_with("<svg") && text.ends_with("</svg>"), "{text}");
            let line = text.lines().find(|line| line.contains("fill=\"none\"")).unwrap();
            let path = line.split('"').nth(1).unwrap();
            let numbers =
                path.split(|c: char| !(c.is_ascii_digit() || c == '.')).filter_map(|word| word.parse::<f64>().ok());
            assert!(numbers.into_iter().all(|number| (0.0..=900.0).contains(&number)), "{path}");
        }
    }

    #[test]
    fn nothing_and_one_point_and_very_many_are_drawn_too() {
        assert!(!plot(vec![], true).contains("NaN"));
        assert!(!plot(vec![(1.0, 5.0)], true).contains("NaN"));
        let many = plot((0..100_000).map(|at| (f64::from(at), 1.0 + f64::from(at % 7))).collect(), false);
        assert!(many.matches('L').count() <= POINTS_MAX, "{}", many.len());
    }
}
