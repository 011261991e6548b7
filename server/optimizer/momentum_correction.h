// Corrects a contribution that goes against the outer momentum, or hardly with it, before it is
// applied: HeLoCo (arXiv:2606.00271), whose contributions are late and of data of their own. The
// formulas are those that a reader of the paper gives (github.com/junaidaliop/zij,
// docs/math/heloco.md); the paper's own text and its settings were not at hand, and may differ.
//
// Part by part of the vector, with d the contribution, m the momentum, c the cosine between them
// and k = |d| / (|d| + kappa * (1 - momentum) * |m|), the confidence in d:
//
//   c >= keep_cosine:      d
//   c < 0:                 d - s * c * |d| * m / |m|,  s = min(shrink * -c * k, max_shrink)
//   0 <= c < keep_cosine:  |d| * u / |u|,  u = (1 - t) * d / |d| + t * m / |m|,
//                          t = min(turn * (1 - c) * k, 1)
//
// (1 - momentum) * |m| is the length of a mean: there momentum is a mean of contributions, here it
// is their sum (OuterNesterov). Where it is less than least_momentum of |d|, which is ours, d
// stays: of a momentum that has cancelled out rounding decides where it points.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/params/layout.h"

namespace lodestar::optimizer {

class MomentumCorrection {
 public:
  struct Config {
    double momentum = 0.9;  // of the outer optimizer
    double keep_cosine = 0.1;
    double shrink = 1.0;
    double max_shrink = 1.0;
    double turn = 0.5;
    double kappa = 1.0;
    double least_momentum = 1e-3;  // of |d|
  };
  // What a contribution becomes: keep * d + add * m.
  struct Factors {
    double keep = 1.0;
    double add = 0.0;
    friend bool operator==(const Factors&, const Factors&) = default;
  };

  explicit MomentumCorrection(const Config& config) : config_(config) {}

  // `length` = |d|, `momentum_length` = |m|, `product` = d * m. Of nothing, or with no momentum,
  // nothing is corrected.
  Factors FactorsOf(double length, double momentum_length, double product) const;

  // One for each of `parts`, ranges of both vectors; d is `contribution` times `scale`. Those of
  // parts that stay as they are are {1, 0}.
  std::vector<Factors> FactorsOf(absl::Span<const ElementRange> parts, const float* contribution,
                                 float scale, const float* momentum) const;

 private:
  const Config config_;
};

}  // namespace lodestar::optimizer
