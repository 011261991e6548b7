// SPDX-License-Identifier: Apache-2.0

#include "server/firewall/client_hello.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace lodestar::firewall {
namespace {

// Returns the ClientHello that OpenSSL sends.
std::string HelloOfOpenssl(int min_version, int max_version) {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_set_min_proto_version(context, min_version);
  SSL_CTX_set_max_proto_version(context, max_version);
  SSL* const ssl = SSL_new(context);
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, BIO_new(BIO_s_mem()), sent);
  SSL_connect(ssl);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(sent, &bytes);
  std::string hello(bytes, static_cast<size_t>(size));
  SSL_free(ssl);
  SSL_CTX_free(context);
  return hello;
}

std::string Number(size_t value, int num_bytes) {
  std::string bytes;
  for (int i = num_bytes - 1; i >= 0; --i) bytes.push_back(static_cast<char>(value >> (8 * i)));
  return bytes;
}

std::string Record(absl::string_view part) {
  return absl::StrCat(std::string("\x16\x03\x01", 3), Number(part.size(), 2), part);
}

// Returns a ClientHello with these extensions. `extensions` must begin with their length, or be
// empty.
std::string Message(absl::string_view extensions) {
  const std::string body =
      absl::StrCat(std::string("\x03\x03", 2), std::string(32, 'r'), Number(0, 1), Number(2, 2),
                   Number(0x1301, 2), Number(1, 1), Number(0, 1), extensions);
  return absl::StrCat(Number(1, 1), Number(body.size(), 3), body);
}

std::string Extension(size_t type, absl::string_view data) {
  return absl::StrCat(Number(type, 2), Number(data.size(), 2), data);
}

std::string Extensions(absl::string_view all) { return absl::StrCat(Number(all.size(), 2), all); }

TEST(ClientHelloTest, WhoOffersTls13IsTold) {
  EXPECT_EQ(ClassifyClientHello(HelloOfOpenssl(TLS1_3_VERSION, TLS1_3_VERSION)),
            ClientHello::kOffersTls13);
  EXPECT_EQ(ClassifyClientHello(HelloOfOpenssl(TLS1_2_VERSION, TLS1_3_VERSION)),
            ClientHello::kOffersTls13);
  EXPECT_EQ(ClassifyClientHello(HelloOfOpenssl(TLS1_2_VERSION, TLS1_2_VERSION)),
            ClientHello::kOlder);
  EXPECT_EQ(ClassifyClientHello(Record(Message(""))), ClientHello::kOlder);
  EXPECT_EQ(ClassifyClientHello(Record(Message(Extensions("")))), ClientHello::kOlder);
  EXPECT_EQ(ClassifyClientHello(Record(Message(
                Extensions(absl::StrCat(Extension(0x0a, "xx"), Extension(0x2b, "\x02\x03\x03")))))),
            ClientHello::kOlder);
  EXPECT_EQ(
      ClassifyClientHello(Record(Message(Extensions(Extension(0x2b, "\x04\x03\x03\x03\x04"))))),
      ClientHello::kOffersTls13);
}

TEST(ClientHelloTest, MoreMayHaveToCome) {
  const std::string whole = HelloOfOpenssl(TLS1_2_VERSION, TLS1_3_VERSION);
  for (size_t size = 2; size < whole.size(); ++size) {
    EXPECT_EQ(ClassifyClientHello(whole.substr(0, size)), ClientHello::kIncomplete) << size;
  }
}

TEST(ClientHelloTest, MayComeInSeveralRecords) {
  const std::string message = Message(Extensions(Extension(0x2b, "\x02\x03\x04")));
  for (const size_t cut : {size_t{1}, size_t{3}, size_t{4}, size_t{40}, message.size() - 1}) {
    const std::string first = Record(message.substr(0, cut));
    EXPECT_EQ(ClassifyClientHello(first), ClientHello::kIncomplete) << cut;
    EXPECT_EQ(ClassifyClientHello(absl::StrCat(first, Record(message.substr(cut)))),
              ClientHello::kOffersTls13)
        << cut;
  }
}

TEST(ClientHelloTest, EverythingElseIsRefused) {
  const std::string hello = Message("");
  EXPECT_EQ(ClassifyClientHello(std::string("\x16\x04", 2)), ClientHello::kIncomplete);
  EXPECT_EQ(ClassifyClientHello(std::string("\x16\x04\x00", 3)), ClientHello::kMalformed);
  EXPECT_EQ(ClassifyClientHello(std::string("\x16\x03\x01\x00\x00", 5)), ClientHello::kMalformed);
  EXPECT_EQ(ClassifyClientHello(std::string("\x16\x03\x01\xff\xff", 5)), ClientHello::kMalformed);
  EXPECT_EQ(ClassifyClientHello(Record(std::string("\x02\x00\x00\x00", 4))),
            ClientHello::kMalformed);
  EXPECT_EQ(ClassifyClientHello(Record(absl::StrCat(hello, "x"))), ClientHello::kMalformed);
  EXPECT_EQ(ClassifyClientHello(Record(Message("x"))), ClientHello::kMalformed);
  EXPECT_EQ(ClassifyClientHello(Record(Message(Extensions("x")))), ClientHello::kMalformed);
  EXPECT_EQ(ClassifyClientHello(Record(Message(Extensions(Extension(0x2b, "\x03\x03\x04"))))),
            ClientHello::kMalformed);
  // A real client's message is never as long as this one says.
  EXPECT_EQ(ClassifyClientHello(Record(absl::StrCat(Number(1, 1), Number(1 << 20, 3)))),
            ClientHello::kMalformed);
  const std::string endless = Record(std::string(1, '\1'));
  std::string bytes;
  while (bytes.size() < kMaxClientHelloBytes) bytes += endless;
  EXPECT_EQ(ClassifyClientHello(bytes), ClientHello::kMalformed);
}

}  // namespace
}  // namespace lodestar::firewall
