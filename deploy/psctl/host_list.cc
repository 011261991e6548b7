// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/host_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/runtime/peer_text.h"
#include "common/runtime/status_macros.h"

namespace lodestar::psctl {
namespace {

constexpr int kMaxWorkers = 64;  // maximum number of workers on one host
constexpr int kMaxCard = 255;

absl::Status SetWorkers(absl::string_view value, WorkerHost& host) {
  if (absl::SimpleAtoi(value, &host.workers) && host.workers >= 1 && host.workers <= kMaxWorkers) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("workers=", PeerText(value), " is not a number from 1 to ", kMaxWorkers));
}

absl::Status SetCards(absl::string_view value, WorkerHost& host) {
  for (const absl::string_view text : absl::StrSplit(value, ',')) {
    int card = 0;
    const bool is_card = absl::SimpleAtoi(text, &card) && card >= 0 && card <= kMaxCard;
    if (!is_card || std::find(host.cards.begin(), host.cards.end(), card) != host.cards.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cards=", PeerText(value), " is not a list of different numbers from 0 to ",
                       kMaxCard, ", separated by commas"));
    }
    host.cards.push_back(card);
  }
  host.workers = static_cast<int>(host.cards.size());
  return absl::OkStatus();
}

// Parses a line that is not empty.
absl::StatusOr<WorkerHost> ParseHost(absl::string_view line) {
  const std::vector<absl::string_view> words =
      absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  WorkerHost host = {.address = std::string(words[0])};
  // ssh would take such an address for an option.
  if (absl::StartsWith(host.address, "-") || absl::StrContains(host.address, '=')) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", PeerText(host.address), "' is not a host name or IP address"));
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (parts.first == "workers" && words.size() == 2) {
      RETURN_IF_ERROR(SetWorkers(parts.second, host));
    } else if (parts.first == "cards" && words.size() == 2) {
      RETURN_IF_ERROR(SetCards(parts.second, host));
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", PeerText(words[i]),
          "' is not allowed here; after the host, write only workers=N or cards=A,B,..."));
    }
  }
  return host;
}

}  // namespace

absl::StatusOr<std::vector<WorkerHost>> ParseHostList(absl::string_view text) {
  std::vector<WorkerHost> hosts;
  int number = 0;
  absl::ConsumePrefix(&text, kByteOrderMark);
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line.substr(0, line.find('#')));
    if (line.empty()) continue;
    absl::StatusOr<WorkerHost> host = ParseHost(line);
    if (!host.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", host.status().message()));
    }
    hosts.push_back(*std::move(host));
  }
  if (hosts.empty())
    return absl::InvalidArgumentError("the file names no host; write one host per line");
  return hosts;
}

}  // namespace lodestar::psctl
