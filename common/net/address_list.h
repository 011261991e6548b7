// SPDX-License-Identifier: Apache-2.0

// The addresses at which the coordinator may be. There are several if another process, such as a
// promoted replica, may become the coordinator. They are tried in turn, beginning with the address
// that answered last. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace lodestar::net {

class AddressList {
 public:
  // Reads HOST:PORT[,HOST:PORT...]. Errors: InvalidArgument naming `flag`, if an address is
  // malformed or given twice.
  static absl::StatusOr<AddressList> Parse(absl::string_view flag, absl::string_view value);
  static AddressList Of(std::string address) {
    std::vector<std::string> addresses;
    addresses.push_back(std::move(address));
    return AddressList(std::move(addresses));
  }
  // Requires: `addresses` is not empty.
  explicit AddressList(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {}

  const std::string& current() const { return addresses_[current_]; }
  void Next() { current_ = (current_ + 1) % addresses_.size(); }
  size_t size() const { return addresses_.size(); }
  const std::vector<std::string>& all() const { return addresses_; }
  // Returns the addresses in the order given, such as "a:1, b:2".
  std::string ToString() const;

  // Returns true if `status` shows that the server is not the coordinator or cannot be reached, so
  // that another address should be tried.
  static bool IsElsewhere(const absl::Status& status);

 private:
  std::vector<std::string> addresses_;
  size_t current_ = 0;
};

// Asks the servers in turn until a server answers OK or refuses the caller (PermissionDenied,
// Unauthenticated). If a server names the coordinator's address, that address is asked next.
// Returns the last answer. Requires: `servers` is not empty.
absl::Status AskCoordinator(absl::Span<const std::string> servers,
                            absl::FunctionRef<absl::Status(const std::string& server)> ask);

// Tries each address of the list once, until the coordinator has answered.
class AddressSearch {
 public:
  // `addresses` must outlive this object.
  explicit AddressSearch(AddressList* addresses) : addresses_(*addresses) {}

  // Must be called with the answer of the current address. If the next address should be tried,
  // makes it the current one and returns true. Returns false if the coordinator has answered, or
  // all addresses have been tried.
  bool GoesOn(const absl::Status& answer);
  // Returns the last answer. If all addresses have been tried, returns an error that contains the
  // answers of all addresses.
  absl::Status Outcome() const;

 private:
  AddressList& addresses_;
  std::vector<absl::Status> answers_;
};

}  // namespace lodestar::net
