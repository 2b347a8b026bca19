//! The plot of a study. In: its points. Out: SVG.

use anyhow::{anyhow, ensure, Result};
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use serde_json::{Map, Value};

use super::study::{Plot, Series, Study};

const SIZE: (u32, u32) = (720, 440);
/// Of the larger axis, so that no point lies on the frame.
const MARGIN: f64 = 0.06;

type Line = Vec<(f64, f64)>;

/// The points of a study as lines.
///
/// # Errors
/// When a point lacks what the plot shows.
pub fn svg(study: &Study, measured: &Map<String, Value>) -> Result<String> {
    let plot = &study.plot;
    let lines = plot.series.iter().map(|series| line(plot, series, measured)).collect::<Result<Vec<Line>>>()?;
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let drawn = match plot.logarithmic {
            true => {
                let [x, y] = bounds(&lines, |least, most| (least * 0.8)..(most * 1.25));
                draw(&area, study, x.log_scale(), y.log_scale(), &lines)
            }
            false => {
                let [x, y] = bounds(&lines, |least, most| 0f64.min(least)..(most * (1.0 + MARGIN)));
                draw(&area, study, x, y, &lines)
            }
        };
        drawn.map_err(|error| anyhow!("the plot of {}: {error}", study.name))?;
    }
    Ok(text)
}

fn line(plot: &Plot, series: &Series, measured: &Map<String, Value>) -> Result<Line> {
    let points = measured.get("points").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    ensure!(!points.is_empty(), "there are no points to draw");
    let number = |point: &Value, name: &str| {
        point.get(name).and_then(Value::as_f64).ok_or_else(|| anyhow!("a point has no number {name}: {point}"))
    };
    // A point of another kind has no such field, and belongs to no such line.
    let mine = points.iter().filter(|point| point.get(&series.of).is_some());
    mine.map(|point| Ok((number(point, &plot.x)?, number(point, &series.of)?))).collect()
}

fn bounds(lines: &[Line], widen: impl Fn(f64, f64) -> std::ops::Range<f64>) -> [std::ops::Range<f64>; 2] {
    let along = |pick: fn(&(f64, f64)) -> f64| {
        let numbers = || lines.iter().flatten().map(pick);
        widen(numbers().fold(f64::INFINITY, f64::min), numbers().fold(f64::NEG_INFINITY, f64::max))
    };
    [along(|point| point.0), along(|point| point.1)]
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw<X, Y>(
    area: &Area<'_>,
    study: &Study,
    x: X,
    y: Y,
    lines: &[Line],
) -> std::result::Result<(), Box<dyn std::error::Error>>
where
    X: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
    Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
    Y::CoordDescType: ValueFormatter<f64>,
{
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .caption(&study.title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(64)
        .build_cartesian_2d(x, y)?;
    let format = |number: &f64| format!("{}", (number * 1000.0).round() / 1000.0);
    chart
        .configure_mesh()
        .x_desc(&study.plot.x_label)
        .y_desc(&study.plot.y_label)
        .x_label_formatter(&format)
        .y_label_formatter(&format)
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (number, (points, series)) in lines.iter().zip(&study.plot.series).enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(series.label.as_str())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
    }
    if lines.len() > 1 {
        chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw()?;
    }
    area.present()?;
    Ok(())
}
