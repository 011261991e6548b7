// SPDX-License-Identifier: Apache-2.0

// Chooses the connection to close if there is no room for a new one. So a client cannot keep other
// clients out by opening many connections that send or read nothing. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lodestar::http {

struct PlaceHolder {
  uint64_t id = 0;
  std::string address;  // IP address of the peer's machine
  absl::Time since;
  bool stays = false;    // true: a thread is making the answer to its request
  bool is_told = false;  // true: its request is complete, and the answer or events are being sent
};

// Returns the connection to close, or nullopt if every connection has `stays`. Chooses among the
// connections without `stays`:
//   first by address: the address with the most connections
//   then those without `is_told`
//   then the oldest
std::optional<uint64_t> ChooseToGo(const std::vector<PlaceHolder>& holders);

}  // namespace lodestar::http
