// SPDX-License-Identifier: Apache-2.0

#include "deploy/psctl/identity_commands.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/net/address_list.h"
#include "common/runtime/json.h"
#include "common/runtime/status_macros.h"
#include "common/runtime/text_table.h"
#include "common/security/join_string.h"
#include "proto/message_json.h"

namespace lodestar::psctl {
namespace {

// Returns a time as "in 3h", "2m ago" or "now".
std::string When(int64_t unix_ms, absl::Time now) {
  const absl::Duration rest = absl::FromUnixMillis(unix_ms) - now;
  const absl::Duration size = absl::AbsDuration(rest);
  const absl::Duration unit = size >= absl::Hours(48)    ? absl::Hours(1)
                              : size >= absl::Minutes(2) ? absl::Minutes(1)
                                                         : absl::Seconds(1);
  if (size < absl::Seconds(1)) return "now";
  const std::string text = absl::FormatDuration(absl::Trunc(size, unit));
  return rest >= absl::ZeroDuration() ? absl::StrCat("in ", text) : absl::StrCat(text, " ago");
}

absl::StatusOr<std::string> CreateToken(ClusterClient& client, const TokenOptions& options) {
  v1::CreateTokenRequest request;
  request.set_role(options.role);
  request.set_ttl_ms(absl::ToInt64Milliseconds(options.ttl));
  request.set_max_uses(static_cast<uint32_t>(options.max_uses));
  request.set_name(options.name);
  if (!options.address.empty()) {
    RETURN_IF_ERROR(net::AddressList::Parse("address", options.address).status());
  }
  ASSIGN_OR_RETURN(const v1::CreateTokenReply reply, client.CreateToken(request));
  if (options.address.empty() && !net::AddressList::Parse("address", reply.address()).ok()) {
    // This command ends with an error and does not show the token's secret. No other program knows
    // the secret, so the token is useless.
    client.RevokeToken(reply.token_id()).IgnoreError();
    return absl::InvalidArgumentError(
        absl::StrCat("the server gives its address as '", reply.address(),
                     "', which is not HOST:PORT, so the token is revoked again. Give "
                     "--address=HOST:PORT, or start the server with --advertise=HOST:PORT"));
  }
  security::JoinString join;
  join.servers = options.address.empty() ? reply.address() : options.address;
  join.authority_sha256 = reply.authority_sha256();
  join.token_id = reply.token_id();
  join.secret = reply.secret();
  if (options.address.empty() && absl::StartsWith(reply.address(), "localhost:")) {
    std::fprintf(stderr,
                 "psctl: this join string works only on the server's machine, because that "
                 "machine's only name is localhost. For other machines, give --address=HOST:PORT, "
                 "or start the server with --advertise\n");
  }
  // Parses the join string as its users will, so that an invalid address is found here and not
  // there.
  RETURN_IF_ERROR(security::ParseJoinString("the server's answer", join.ToString()).status());
  if (options.as_json) {
    return absl::StrCat(FormatJson({{"id", join.token_id}, {"join", join.ToString()}}), "\n");
  }
  return absl::StrCat(join.ToString(), "\n");
}

}  // namespace

std::string TokenTable(const v1::ListTokensReply& reply, absl::Time now) {
  TextTable table({{"ID"}, {"ROLE"}, {"NAME"}, {"USES"}, {"ENDS"}});
  std::vector<v1::Token> tokens(reply.tokens().begin(), reply.tokens().end());
  std::sort(tokens.begin(), tokens.end(), [](const v1::Token& a, const v1::Token& b) {
    return a.created_unix_ms() < b.created_unix_ms();
  });
  for (const v1::Token& token : tokens) {
    table.AddRow({token.id(), token.role(), token.name().empty() ? "any" : token.name(),
                  token.max_uses() == 0 ? absl::StrCat(token.uses())
                                        : absl::StrCat(token.uses(), " of ", token.max_uses()),
                  token.is_revoked() ? "revoked" : When(token.expires_unix_ms(), now)});
  }
  return table.Format(kUnlimitedColumns);
}

std::string IdentityTable(const v1::ListIdentitiesReply& reply, absl::Time now) {
  TextTable table({{"ROLE"}, {"NAME"}, {"ENROLLED"}, {"CERTIFICATE ENDS"}, {"TOKEN"}});
  std::vector<v1::PeerIdentity> identities(reply.identities().begin(), reply.identities().end());
  std::sort(identities.begin(), identities.end(),
            [](const v1::PeerIdentity& a, const v1::PeerIdentity& b) {
              return a.enrolled_unix_ms() < b.enrolled_unix_ms();
            });
  for (const v1::PeerIdentity& identity : identities) {
    table.AddRow({identity.role(), identity.name(), When(identity.enrolled_unix_ms(), now),
                  identity.revoked_unix_ms() != 0
                      ? absl::StrCat("revoked ", When(identity.revoked_unix_ms(), now))
                      : When(identity.expires_unix_ms(), now),
                  identity.token_id().empty() ? "this server" : identity.token_id()});
  }
  return table.Format(kUnlimitedColumns);
}

absl::StatusOr<std::string> TokenText(ClusterClient& client, const TokenOptions& options,
                                      absl::Time now) {
  const std::string& action = options.words.front();
  if (action == "create" && options.words.size() == 1) return CreateToken(client, options);
  if (action == "list" && options.words.size() == 1) {
    ASSIGN_OR_RETURN(const v1::ListTokensReply reply, client.ListTokens());
    if (options.as_json) return wire::MessageJsonLine(reply);
    return TokenTable(reply, now);
  }
  if (action == "revoke" && options.words.size() > 1) {
    std::string text;
    for (size_t i = 1; i < options.words.size(); ++i) {
      RETURN_IF_ERROR(client.RevokeToken(options.words[i]));
      absl::StrAppend(&text, "token ", options.words[i],
                      " is revoked: no machine can join with it any more\n");
    }
    return text;
  }
  return absl::InvalidArgumentError(
      "the action is missing: give psctl token create, psctl token list or psctl token revoke ID");
}

absl::StatusOr<std::string> IdentitiesText(ClusterClient& client, bool as_json, absl::Time now) {
  ASSIGN_OR_RETURN(const v1::ListIdentitiesReply reply, client.ListIdentities());
  if (as_json) return wire::MessageJsonLine(reply);
  return IdentityTable(reply, now);
}

std::string RevocationText(absl::string_view name, const v1::RevokeReply& reply) {
  std::string text =
      absl::StrCat(name,
                   reply.num_identities() == 0
                       ? " was already revoked; only a token that is made from now on lets it join"
                       : " is revoked",
                   "; ", reply.num_lives(), reply.num_lives() == 1 ? " worker" : " workers",
                   " with this name ended\n");
  for (const std::string& id : reply.ended_tokens()) {
    absl::StrAppend(
        &text, "token ", id,
        ", with which it had joined, is revoked: no machine can join with it any more\n");
  }
  for (const std::string& id : reply.open_tokens()) {
    absl::StrAppend(
        &text, "token ", id,
        ", with which it had joined or could join again, is still valid. Other machines, and this "
        "machine under another name, can join with it. To prevent that, run psctl token revoke ",
        id, "\n");
  }
  return text;
}

absl::StatusOr<std::string> RevokeIdentities(ClusterClient& client,
                                             const std::vector<std::string>& names,
                                             bool with_tokens, std::optional<int64_t> since_round) {
  if (since_round.has_value()) {
    ASSIGN_OR_RETURN(const v1::ListIdentitiesReply known, client.ListIdentities());
    for (const std::string& name : names) {
      const bool is_known =
          std::any_of(known.identities().begin(), known.identities().end(),
                      [&name](const v1::PeerIdentity& it) { return it.name() == name; });
      if (!is_known) {
        return absl::NotFoundError(
            absl::StrCat("no certificate is revoked, because there is no identity '", name,
                         "'; psctl identities lists all"));
      }
    }
    const absl::Status may_go_back = client.CheckRollBack(*since_round).status();
    if (!may_go_back.ok()) {
      return absl::Status(
          may_go_back.code(),
          absl::StrCat(
              "no certificate is revoked, because the job cannot go back to round ", *since_round,
              " or earlier: ", may_go_back.message(),
              ". To revoke the certificates and keep the weights, leave --since_round out"));
    }
  }
  std::string text;
  // All names are tried. The error that is returned has the code of the first failure.
  absl::Status failure;
  for (const std::string& name : names) {
    const absl::StatusOr<v1::RevokeReply> reply = client.Revoke(name, with_tokens);
    if (!reply.ok()) {
      absl::StrAppend(&text, name, ": ", reply.status().message(), "\n");
      failure.Update(reply.status());
      continue;
    }
    absl::StrAppend(&text, RevocationText(name, *reply));
  }
  if (!failure.ok()) {
    if (since_round.has_value()) {
      absl::StrAppend(&text, "the job did not go back; if it must, run psctl rollback --round=",
                      *since_round, "\n");
    }
    text.pop_back();  // removes the end of the last line
    return absl::Status(failure.code(), text);
  }
  if (!since_round.has_value()) return text;
  const absl::StatusOr<v1::RollBackReply> back = client.RollBack(
      *since_round, absl::StrCat("contributions of ", absl::StrJoin(names, ", "), " since round ",
                                 *since_round, " are not trusted"));
  if (back.ok()) return absl::StrCat(text, RollBackText(*back), "\n");
  return absl::Status(back.status().code(),
                      absl::StrCat(text, "but the job did not go back: ", back.status().message(),
                                   ". Try again with psctl rollback --round=", *since_round));
}

std::string RollBackText(const v1::RollBackReply& reply) {
  return absl::StrCat("the job continues from ", reply.path(), ": ", reply.rounds_undone(),
                      reply.rounds_undone() == 1 ? " round is" : " rounds are",
                      " undone, and later checkpoints are renamed to *.abandoned");
}

}  // namespace lodestar::psctl
