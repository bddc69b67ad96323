"""C++ of the examples beside generated libraries: what a device gives for the same state in every
row is compared with what Python gave.
"""

from __future__ import annotations

# a template with `real` and `tolerance`; counts `failures`
COMPARISON = """\
static const int ROWS = 37; /* the same state again and again */
inline int failures = 0;

inline std::vector<$real> repeated(const std::vector<double> &row) {
  std::vector<$real> rows;
  for (int k = 0; k < ROWS; ++k) rows.insert(rows.end(), row.begin(), row.end());
  return rows;
}

inline void compare(const char *what, const std::vector<$real> &computed, const std::vector<double> &expected) {
  double largest = 1.0, error = 0.0;
  for (double x : expected) largest = std::fmax(largest, std::fabs(x));
  for (size_t k = 0; k < computed.size(); ++k) {
    const double difference = std::fabs(computed[k] - expected[k % expected.size()]) / largest;
    if (!(difference <= error)) error = difference; /* NaN too */
  }
  const bool right = error <= $tolerance;
  failures += !right;
  std::printf("%-56s %7zu numbers, error %.1e%s\\n", what, computed.size(), error, right ? "" : "   WRONG");
}
"""
