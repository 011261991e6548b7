// Where the coordinator may be: several addresses where another process may take its place, as a
// promoted replica does. Tried in turn, from the one that answered last. Pure.
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

namespace lodestar {

class AddressList {
 public:
  // Reads HOST:PORT[,HOST:PORT...]. Errors: InvalidArgument naming `flag`, also if an address comes
  // twice.
  static absl::StatusOr<AddressList> Parse(absl::string_view flag, absl::string_view value);
  static AddressList Of(std::string address) {
    std::vector<std::string> addresses;
    addresses.push_back(std::move(address));
    return AddressList(std::move(addresses));
  }
  // Requires: not empty.
  explicit AddressList(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {}

  const std::string& current() const { return addresses_[current_]; }
  void Next() { current_ = (current_ + 1) % addresses_.size(); }
  size_t size() const { return addresses_.size(); }
  const std::vector<std::string>& all() const { return addresses_; }
  // "a:1, b:2", in the order given.
  std::string ToString() const;

  // Whether this is what one answers who is not the coordinator, or cannot be heard: then another
  // address may do.
  static bool IsElsewhere(const absl::Status& status);

 private:
  std::vector<std::string> addresses_;
  size_t current_ = 0;
};

// Asks the servers in turn until one answers with OK or refuses who asks (PermissionDenied,
// Unauthenticated), and meanwhile wherever one of them says that the coordinator is. Returns the
// last answer. `servers`: not empty.
absl::Status AskCoordinator(absl::Span<const std::string> servers,
                            absl::FunctionRef<absl::Status(const std::string& server)> ask);

// One pass over the list, for a caller that needs an answer.
class AddressSearch {
 public:
  // Outlives this.
  explicit AddressSearch(AddressList* addresses) : addresses_(*addresses) {}

  // The current address has answered so. Whether the next one, the current one from now on, is to
  // be tried: not if this was the coordinator, nor once all have been tried.
  bool GoesOn(const absl::Status& answer);
  // The last answer; if all have been tried, what each of them has answered.
  absl::Status Outcome() const;

 private:
  AddressList& addresses_;
  std::vector<absl::Status> answers_;
};

}  // namespace lodestar
