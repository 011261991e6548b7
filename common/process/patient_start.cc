// SPDX-License-Identifier: Apache-2.0

#include "common/process/patient_start.h"

#include <cerrno>

namespace lodestar::process {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(50);

bool MayPass(int error) { return error == EAGAIN || error == ENOMEM; }

}  // namespace

int StartPatiently(const StartEffects& effects) {
  int error = effects.start();
  if (!MayPass(error)) return error;
  const absl::Time begin = effects.now();
  bool was_told = false;
  while (MayPass(error) && effects.now() - begin < kStartPatience) {
    if (!was_told && effects.now() - begin >= kUntoldRefusal) {
      effects.tell(StartNews::kRefused);
      was_told = true;
    }
    effects.pause(kPause);
    error = effects.start();
  }
  if (was_told && !MayPass(error)) effects.tell(StartNews::kNotRefused);
  return error;
}

}  // namespace lodestar::process
