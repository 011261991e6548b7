// Chooses the connection that goes when there is no room for another one, so that no client keeps
// others out by opening many, and saying or reading nothing. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

namespace lodestar {

struct PlaceHolder {
  uint64_t id = 0;
  std::string address;  // of its machine
  absl::Time since;
  bool stays = false;    // its request is being answered: a thread is at work for it
  bool is_told = false;  // has asked, and is being sent the answer, or events
};

// One of those that do not stay, of the address that has the most places, counting all of its
// connections: the oldest of those that are not told anything; if there are none, the oldest. So
// one address cannot keep others out, whatever it does with its connections. Nothing: all stay.
std::optional<uint64_t> ChooseToGo(const std::vector<PlaceHolder>& holders);

}  // namespace lodestar
