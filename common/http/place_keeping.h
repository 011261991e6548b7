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

// Returns the connection to close. It belongs to the address with the most connections, and does
// not have `stays`. Among these, connections without `is_told` come first, and then the oldest. So
// one address cannot keep other addresses out. nullopt means that every connection has `stays`.
std::optional<uint64_t> ChooseToGo(const std::vector<PlaceHolder>& holders);

}  // namespace lodestar::http
