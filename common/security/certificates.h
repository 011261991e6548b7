// Keys and certificates, all as PEM text: P-256 with SHA-256. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/identity.h"

namespace lodestar {

// Returns 2 * num_bytes hexadecimal digits that cannot be guessed.
std::string RandomHex(int num_bytes);
// 64 hexadecimal digits.
std::string Sha256Hex(absl::string_view bytes);
// Takes the same time wherever they differ.
bool AreEqualSecrets(absl::string_view a, absl::string_view b);

std::string NewPrivateKey();

struct Validity {
  absl::Time from;
  absl::Time until;
};

// The certificate of an authority, signed by itself. It signs certificates of peers, and none of
// other authorities. Errors: InvalidArgument (key).
absl::StatusOr<std::string> MakeAuthority(const std::string& key, const Validity& validity);

// Asks for a certificate for the public half of `key`. Errors: InvalidArgument (key).
absl::StatusOr<std::string> MakeCertificateRequest(const std::string& key);

struct Authority {
  std::string certificate;
  std::string key;
};

// The program that asks must have the key: the request's signature is checked. Nothing else in the
// request counts. `hosts`: names and addresses under which browsers come to a server. Errors:
// InvalidArgument.
absl::StatusOr<std::string> IssueCertificate(const Authority& authority, const std::string& request,
                                             const Identity& identity, const Validity& validity,
                                             const std::vector<std::string>& hosts = {});
// All servers have it as a name of theirs.
inline constexpr char kServerHostName[] = "lodestar";

// Whether a certificate can be issued for a host of that name, or of that address. Errors:
// InvalidArgument naming `what`.
absl::Status CheckHostName(absl::string_view what, absl::string_view host);
// Whether a browser takes the certificate for each of `hosts`.
bool IsForHosts(const std::string& certificate, const std::vector<std::string>& hosts);

// Returns the SHA-256 of the DER encoding of the first certificate in `certificate`: 64 hexadecimal
// digits.
absl::StatusOr<std::string> FingerprintOf(const std::string& certificate);

struct CertificateFacts {
  Identity identity;
  Validity validity;
};

// Errors: InvalidArgument for what is no certificate, or has no identity.
absl::StatusOr<CertificateFacts> FactsOf(const std::string& certificate);
absl::StatusOr<Validity> ValidityOf(const std::string& certificate);

// Whether `authority` vouches for it at `now`. Errors: PermissionDenied.
absl::Status CheckIssued(const std::string& certificate, const std::string& authority,
                         absl::Time now);
// Returns true if one of `authorities` has signed the first certificate of `chain`, or one that the
// following certificates of `chain` lead to, whatever the clock shows. Both are PEM text of one or
// several certificates.
bool IsSignedBy(const std::string& chain, const std::string& authorities);
// Whether it may be shown as whom it names: by clients, and of a server by servers, too. Errors:
// InvalidArgument naming the extended key usages that are wanted.
absl::Status CheckPurposes(const std::string& certificate, Role role);
// Whether the certificate is for this key. Errors: InvalidArgument.
absl::Status CheckKeyFits(const std::string& certificate, const std::string& key);

}  // namespace lodestar
