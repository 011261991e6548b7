// Whose connection goes when there is no room for another one: nobody keeps others out by opening
// many and saying nothing. Pure.
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
  bool may_go = false;  // has not asked for anything yet, or was told all
};

// The one that has been there longest among those that may go of the address that has the most
// places, counting all of its connections. Nothing: none may go.
std::optional<uint64_t> ChooseToGo(const std::vector<PlaceHolder>& holders);

}  // namespace lodestar
