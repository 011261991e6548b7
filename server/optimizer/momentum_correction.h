// SPDX-License-Identifier: Apache-2.0

// MomentumCorrection corrects a contribution that opposes the outer momentum, or hardly agrees with
// it, before the contribution is applied. This is HeLoCo (arXiv:2606.00271), for contributions that
// are late and computed on unlike data. The formulas come from notes about the paper
// (github.com/junaidaliop/zij, docs/math/heloco.md). The paper itself was not available, so its
// formulas and settings may differ.
//
// For each part of the vector, let d be the contribution, m the momentum, and c the cosine between
// them. The confidence in d is k = |d| / (|d| + kappa * (1 - momentum) * |m|). The result is:
//
//   c >= keep_cosine:      d
//   c < 0:                 d - s * c * |d| * m / |m|,  s = min(shrink * -c * k, max_shrink)
//   0 <= c < keep_cosine:  |d| * u / |u|,  u = (1 - t) * d / |d| + t * m / |m|,
//                          t = min(turn * (1 - c) * k, 1)
//
// The factor 1 - momentum is there because momentum is a mean of contributions in the paper, and
// their sum here (OuterNesterov). One rule is not in the notes: if (1 - momentum) * |m| is less
// than least_momentum * |d|, d stays as it is. The direction of such a short momentum may be only
// rounding.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "common/params/layout.h"

namespace lodestar::optimizer {

class MomentumCorrection {
 public:
  struct Config {
    double momentum = 0.9;  // momentum of the outer optimizer
    double keep_cosine = 0.1;
    double shrink = 1.0;
    double max_shrink = 1.0;
    double turn = 0.5;
    double kappa = 1.0;
    double least_momentum = 1e-3;  // as a share of |d|
  };
  // The corrected contribution is keep * d + add * m.
  struct Factors {
    double keep = 1.0;
    double add = 0.0;
    friend bool operator==(const Factors&, const Factors&) = default;
  };

  explicit MomentumCorrection(const Config& config) : config_(config) {}

  // Returns the factors for `length` = |d|, `momentum_length` = |m| and `product` = d * m. Nothing
  // is corrected if d or m is zero.
  Factors FactorsOf(double length, double momentum_length, double product) const;

  // Returns the factors of each of `parts`, which are ranges of both vectors. d is `contribution`
  // times `scale`. The factors of a part that stays as it is are {1, 0}.
  std::vector<Factors> FactorsOf(absl::Span<const params::ElementRange> parts,
                                 const float* contribution, float scale,
                                 const float* momentum) const;

 private:
  const Config config_;
};

}  // namespace lodestar::optimizer
