use throng_judge::{Curve, Point};

fn points(of: impl Fn(f64) -> f64, loads: &[f64]) -> Vec<Point> {
    loads.iter().map(|load| Point { load: *load, value: of(*load) }).collect()
}

#[test]
fn a_curve_through_its_own_points_is_found_again() {
    let frame_ms = |load: f64| 1.5 + 0.02 * load + 0.000_1 * load * load;
    let curve = Curve::fit(&points(frame_ms, &[1.0, 10.0, 40.0, 80.0, 120.0])).expect("there are points");
    assert!((curve.base - 1.5).abs() < 1e-9 && (curve.slope - 0.02).abs() < 1e-9 && (curve.bend - 1e-4).abs() < 1e-9);
    assert!(curve.largest_error < 1e-9);
    assert!((curve.forecast(168.0) - frame_ms(168.0)).abs() < 1e-6);
    assert!(curve.is_extrapolated(168.0) && !curve.is_extrapolated(100.0));
}

#[test]
fn three_points_give_a_line() {
    let curve = Curve::fit(&points(|load| 2.0 + load, &[1.0, 2.0, 4.0])).expect("there are points");
    assert_eq!(curve.bend, 0.0);
    assert!((curve.forecast(8.0) - 10.0).abs() < 1e-9);
}

#[test]
fn too_few_points_or_odd_ones_give_none() {
    assert_eq!(Curve::fit(&[]), None);
    assert_eq!(Curve::fit(&points(|_| 1.0, &[5.0, 5.0])), None);
    assert_eq!(Curve::fit(&points(|_| f64::NAN, &[1.0, 2.0])), None);
}
