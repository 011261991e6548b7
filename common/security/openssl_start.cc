#include "common/security/openssl_start.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/security/openssl_handles.h"

namespace lodestar {

void ExitUnlessOpensslWorks(absl::string_view program) {
  unsigned char byte = 0;
  if (RAND_bytes(&byte, 1) == 1 && OwnedSslContext(SSL_CTX_new(TLS_method())) != nullptr) return;
  const char* const file = std::getenv("OPENSSL_CONF");
  const std::string text = absl::StrCat(
      program, ": OpenSSL cannot encrypt (", OpensslError(), "). Its configuration is ",
      file == nullptr ? "openssl.cnf in " : absl::StrCat("OPENSSL_CONF=", file, "; else it is in "),
      OpenSSL_version(OPENSSL_DIR),
      ". Activate the default provider in it, or set OPENSSL_CONF to another file\n");
  std::fputs(text.c_str(), stderr);
  constexpr int kExitFailed = 1;
  std::_Exit(kExitFailed);
}

}  // namespace lodestar
