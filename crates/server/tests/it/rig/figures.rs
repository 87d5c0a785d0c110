//! What the service says about itself in numbers.

/// The value of the first series of a metric that has all of these labels; 0 if there is none.
pub(crate) fn figure(text: &str, metric: &str, labels: &[&str]) -> f64 {
    let is_it = |line: &&str| {
        line.strip_prefix(metric).is_some_and(|rest| rest.starts_with(['{', ' ']))
            && labels.iter().all(|label| line.contains(label))
    };
    let found = text.lines().find(is_it).and_then(|line| line.rsplit(' ').next());
    found.map_or(0.0, |value| value.parse().expect("a number"))
}
