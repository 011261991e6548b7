// SPDX-License-Identifier: Apache-2.0

#include "kernels/device_set.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lodestar::kernels {

std::string DeviceSet::Name() const {
  const std::string& name = first().capabilities().name;
  const bool are_alike = std::all_of(devices.begin(), devices.end(), [&](const auto& device) {
    return device->capabilities().name == name;
  });
  if (devices.size() == 1) return name;
  if (are_alike) return absl::StrCat(devices.size(), " x ", name);
  return absl::StrJoin(devices, ", ", [](std::string* text, const auto& device) {
    absl::StrAppend(text, device->capabilities().name);
  });
}

}  // namespace lodestar::kernels
