// SPDX-License-Identifier: Apache-2.0

// Makes and checks keys and certificates, all as PEM text: P-256 with SHA-256. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/security/identity.h"

namespace lodestar::security {

// Returns 2 * num_bytes random hexadecimal digits, which cannot be guessed.
std::string RandomHex(int num_bytes);
// Returns the SHA-256 of `bytes` as 64 hexadecimal digits.
std::string Sha256Hex(absl::string_view bytes);
// Returns true if the texts are equal. The time that this takes does not show where they differ.
bool AreEqualSecrets(absl::string_view a, absl::string_view b);

std::string NewPrivateKey();

struct Validity {
  absl::Time from;
  absl::Time until;
};

// Returns a self-signed certificate for an authority. The authority can issue certificates for
// peers. It cannot issue certificates for other authorities. Errors: InvalidArgument (key).
absl::StatusOr<std::string> MakeAuthority(const std::string& key, const Validity& validity);

// Returns a request for a certificate for the public key that belongs to the private key `key`.
// Errors: InvalidArgument (key).
absl::StatusOr<std::string> MakeCertificateRequest(const std::string& key);

struct Authority {
  std::string certificate;
  std::string key;
};

// Issues a certificate for the key of `request`. The request's signature is checked, so the program
// that asks must have the private key. Nothing else in the request is used. `hosts` are names and
// addresses by which browsers reach a server. Errors: InvalidArgument.
absl::StatusOr<std::string> IssueCertificate(const Authority& authority, const std::string& request,
                                             const Identity& identity, const Validity& validity,
                                             const std::vector<std::string>& hosts = {});
// DNS name in the certificate of every server.
inline constexpr char kServerHostName[] = "lodestar";

// Checks that `host` is a host name or an address for which a certificate can be issued. Errors:
// InvalidArgument naming `what`.
absl::Status CheckHostName(absl::string_view what, absl::string_view host);
// Returns true if browsers accept this certificate from a server at each of `hosts`.
bool IsForHosts(const std::string& certificate, const std::vector<std::string>& hosts);

// Returns the SHA-256 of the DER encoding of the first certificate in `certificate`, as 64
// hexadecimal digits.
absl::StatusOr<std::string> FingerprintOf(const std::string& certificate);

struct CertificateFacts {
  Identity identity;
  Validity validity;
};

// Return the certificate's identity and validity, or only its validity. Errors: InvalidArgument
// (not a certificate, or one without an identity).
absl::StatusOr<CertificateFacts> FactsOf(const std::string& certificate);
absl::StatusOr<Validity> ValidityOf(const std::string& certificate);

// Checks that `authority` has issued `certificate`, and that `certificate` is valid at `now`.
// Errors: PermissionDenied.
absl::Status CheckIssued(const std::string& certificate, const std::string& authority,
                         absl::Time now);
// Returns true if one of `authorities` has signed the first certificate of `chain`, directly or
// through the other certificates of `chain`. The time is not checked. Both are PEM text of one or
// several certificates.
bool IsSignedBy(const std::string& chain, const std::string& authorities);
// Checks that the certificate may be used for `role`. A client's certificate must allow use by
// clients. A server's certificate must allow use by servers and by clients. Errors: InvalidArgument
// naming the extended key usages that are needed.
absl::Status CheckPurposes(const std::string& certificate, Role role);
// Checks that the text has at least one certificate, and that no certificate in it is cut short.
// Errors: InvalidArgument.
absl::Status CheckCertificates(const std::string& pem);
// Checks that the certificate is for the public key that belongs to the private key `key`. Errors:
// InvalidArgument.
absl::Status CheckKeyFits(const std::string& certificate, const std::string& key);

}  // namespace lodestar::security
