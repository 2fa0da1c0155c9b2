//! Side-by-side measurements. Each file in `benches/` compares within one run, and its figures are ratios: machines
//! differ, and one machine differs from minute to minute.
