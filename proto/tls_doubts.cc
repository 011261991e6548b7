// SPDX-License-Identifier: Apache-2.0

#include "proto/tls_doubts.h"

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "common/runtime/time_text.h"
#include "proto/enrollment.h"

namespace lodestar::wire {
namespace {

std::string OwnerText(const std::string& certificate) {
  const absl::StatusOr<security::CertificateFacts> facts = security::FactsOf(certificate);
  return facts.ok() ? absl::StrCat(" (", security::TextOf(facts->identity), ")") : "";
}

// Returns text that says how `now` is outside the certificate's time. Empty means that the
// certificate is valid, or that its times cannot be read.
std::string AgeDoubt(const std::string& certificate, absl::Time now) {
  const absl::StatusOr<security::Validity> validity = security::ValidityOf(certificate);
  if (!validity.ok()) return "";
  if (now >= validity->until) return absl::StrCat("expired at ", UtcText(validity->until));
  if (now < validity->from) return absl::StrCat("is valid only from ", UtcText(validity->from));
  return "";
}

}  // namespace

std::string TlsDoubts(const security::Credentials& own, const security::CredentialFiles& files,
                      absl::string_view address, const std::string& server, absl::Time now) {
  std::vector<std::string> doubts;
  const std::string own_text =
      absl::StrCat("this program's certificate, ", files.certificate, OwnerText(own.certificate));
  if (const std::string age = AgeDoubt(own.certificate, now); !age.empty()) {
    doubts.push_back(absl::StrCat(own_text, ", ", age));
  }
  // A Lodestar authority signs every certificate directly. With an operator's own authority, there
  // may be further certificates between the authority's and the program's.
  const bool may_have_others_between = !files.is_kept;
  if (!security::IsSignedBy(own.certificate, own.authority)) {
    doubts.push_back(absl::StrCat(
        own_text, ", is not signed by an authority in ", files.authority,
        may_have_others_between ? ", and its file has no intermediate certificates that lead to one"
                                : ""));
  }
  if (const absl::Status fits = security::CheckKeyFits(own.certificate, own.key); !fits.ok()) {
    doubts.push_back(absl::StrCat(own_text, ", is not for the key in ", files.key));
  }
  if (!server.empty()) {
    const std::string text =
        absl::StrCat("the certificate of the server at ", address, OwnerText(server));
    if (const std::string age = AgeDoubt(server, now); !age.empty()) {
      doubts.push_back(absl::StrCat(text, " ", age));
    }
    if (!security::IsSignedBy(server, own.authority)) {
      doubts.push_back(absl::StrCat(
          text, " is not signed by an authority in ", files.authority,
          ": it is of another cluster, or this cluster has a new authority",
          may_have_others_between ? ", or the server's file lacks an intermediate certificate"
                                  : ""));
    }
  }
  return absl::StrJoin(doubts, "; ");
}

std::string FindTlsDoubts(const security::CredentialFiles& files, const std::string& servers,
                          absl::Duration timeout) {
  const absl::StatusOr<security::Credentials> own = security::ReadCredentials(files);
  if (!own.ok()) return "";
  std::string shown;
  std::string address;
  for (const absl::string_view server : absl::StrSplit(servers, ',')) {
    const absl::StatusOr<Greeting> greeting = Greet(std::string(server), timeout);
    if (!greeting.ok()) continue;
    address = std::string(server);
    shown = greeting->certificate;
    if (!greeting->is_tls) return absl::StrCat("the server at ", address, " does not speak TLS");
    break;
  }
  return TlsDoubts(*own, files, address, shown, absl::Now());
}

std::string TlsDoubtsLine(absl::string_view doubts, absl::Time now) {
  return absl::StrCat("what may be wrong: ", doubts, ". It is ", UtcText(now),
                      " by the clock of this machine");
}

}  // namespace lodestar::wire
