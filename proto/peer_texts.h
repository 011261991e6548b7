// Texts in what a peer has sent, all at once.
#pragma once

#include <google/protobuf/message.h>

namespace lodestar::wire {

// Makes every text in `message`, and in the messages in it, one that can be shown: see PeerText().
// Fields of bytes stay as they are.
void EscapeTexts(google::protobuf::Message* message);

}  // namespace lodestar::wire
