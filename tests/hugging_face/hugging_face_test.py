# SPDX-License-Identifier: Apache-2.0
"""Exports and imports against Hugging Face's transformers, both ways, and tokens against its tokenizers.

Usage: hugging_face_test.py PS_SERVER GPU_WORKER PSCTL MODEL_PROBE; see run.sh.
"""
import json
import os
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../process"))
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy
import safetensors.numpy
import tokenizers
import torch
import transformers

import cluster_processes
from cluster_processes import BINARIES, ClusterTestCase

# fp32 on both sides, summed in another order.
LOGITS_TOLERANCE = 1e-5

transformers.logging.disable_progress_bar()
transformers.logging.set_verbosity_error()

UGLY_TEXTS = [
    "Hello, world's  best!  I'll we've they'd 'S ''s 's",
    "\n\n \t x \r\n\u00a0a \u00a0b \u2028\u2028 y\u3000z \x00\x01\x7f\x85",
    "12abc\u00b2\u0663\u0967\u2167 \u00bd\u2460x",
    "caf\u00e9 cafe\u0301 \u00c5\u212b \ufb01 \u00df\u1e9e \u0130\u0131",
    "\u6f22\u5b57\u304b\u306a\ud55c\uad6d\uc5b4 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \u05e2\u05d1\u05e8\u05d9\u05ea \u0939\u093f\u0928\u094d\u0926\u0940",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \ufe0f\u200b\ufeff\ufffd\U0010ffff",
    "\U00010d4a\U00010d40\U0002ebf0 \u1c89\ua7cb",
    "<|endoftext|>a<|endoftext|> <|endoftext|><|end oftext|>",
    "a" * 1000 + " " * 100 + "!" * 50 + "\n" * 30 + "x",
    " ",
    "",
]


def run(command, text=""):
  """What a program writes, as bytes; an error if it fails."""
  done = subprocess.run(command, input=text.encode(), capture_output=True,
                        timeout=cluster_processes.PATIENCE_SECONDS, check=False)
  if done.returncode != 0:
    raise AssertionError(f"{command}: exit code {done.returncode}: {done.stderr.decode()}")
  return done.stdout


def our_logits(path, tokens, vocabulary):
  output = run([BINARIES["model_probe"], "logits", path], " ".join(map(str, tokens)))
  return numpy.frombuffer(output, numpy.float32).reshape(len(tokens), vocabulary)


def our_tokens(path, texts):
  lines = run([BINARIES["model_probe"], "tokens", path],
              "".join(json.dumps(text) + "\n" for text in texts)).decode().split("\n")[:-1]
  return [[int(token) for token in line.split()] for line in lines]


def random_gpt2(seed=1, **config):
  """A small GPT-2, all of whose parameters count."""
  torch.manual_seed(seed)
  config = {"n_layer": 2, "n_head": 4, "n_embd": 32, "n_positions": 24, "vocab_size": 300,
            "bos_token_id": None, "eos_token_id": None, **config}
  model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**config)).eval()
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      is_scale = "ln_" in name and name.endswith("weight")
      parameter.normal_(1.0 if is_scale else 0.0, 0.2)
  return model


def their_logits(model, tokens):
  with torch.no_grad():
    return model(torch.tensor([tokens])).logits[0].numpy()


def greedy_text(model, tokenizer, prompt, num_tokens):
  tokens = tokenizer(prompt, return_tensors="pt")
  with torch.no_grad():
    output = model.generate(**tokens, max_new_tokens=num_tokens, do_sample=False, pad_token_id=0)
  return output[0].tolist()


class HuggingFaceTestCase(ClusterTestCase):

  def psctl_ends(self, *arguments):
    return run([BINARIES["psctl"], *arguments]).decode()

  def assert_same_logits(self, path, model):
    tokens = random.Random(2).choices(range(model.config.vocab_size), k=model.config.n_positions)
    ours = our_logits(path, tokens, model.config.vocab_size)
    theirs = their_logits(model, tokens)
    difference = abs(ours - theirs).max()
    print(f"{self.id().rsplit('.', 1)[1]}: logits of up to {abs(theirs).max():.1f} "
          f"differ by {difference:.1e}", file=sys.stderr)
    self.assertGreater(theirs.std(), 0.1)
    self.assertLessEqual(difference, LOGITS_TOLERANCE)


class ExportTest(HuggingFaceTestCase):

  def export_of_two_servers(self):
    """Folders that were exported from servers, and from their checkpoint."""
    launch = self.start(
        [BINARIES["psctl"], "launch", "--servers=2", "--workers=1", "--device=cpu",
         "--data=" + self.path("corpus.txt"), "--", "--model=" + self.path("model.textproto"),
         "--rounds=60", "--batch_size=4", "--eval_samples=8", "--learning_rate=0.03",
         "--bucket_bytes=4096", "--checkpoint_dir=" + self.path("checkpoints")], "launch")
    launch.wait_for_log("the servers keep running")
    self.port = int(re.search(r"psctl status --server=127.0.0.1:(\d+)", launch.log()).group(1))
    online, offline = self.path("online"), self.path("offline")
    exported = self.psctl("export", "--format=huggingface", online)
    self.assertEqual(exported.returncode, 0, exported.stderr)
    self.assertIn("after 60 of 60 rounds", exported.stdout)
    stopped = self.psctl("stop")
    checkpoint = re.search(r"checkpoint (\S+)", stopped.stdout).group(1)
    self.assert_ends(launch)
    self.psctl_ends("export", "--format=huggingface", "--from=" + checkpoint, offline)
    return online, offline, checkpoint

  def test_a_trained_model_gives_the_same_logits_there(self):
    online, offline, checkpoint = self.export_of_two_servers()
    names = sorted(os.listdir(online))
    self.assertEqual(names, sorted(os.listdir(offline)))
    for name in names:
      with open(os.path.join(online, name), "rb") as a, open(os.path.join(offline, name), "rb") as b:
        self.assertEqual(a.read(), b.read(), name)
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        online, output_loading_info=True)
    self.assertEqual({kind: found for kind, found in loading.items() if found}, {})
    self.assertIsInstance(model, transformers.GPT2LMHeadModel)
    for path in (online, checkpoint):
      self.assert_same_logits(path, model.eval())

  def test_a_model_over_bytes_brings_its_tokenizer(self):
    folder = self.export_of_two_servers()[0]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in UGLY_TEXTS:
      self.assertEqual(tokenizer(text)["input_ids"], list(text.encode()), repr(text))
      self.assertEqual(tokenizer.decode(list(text.encode())), text)
    self.assertEqual(our_tokens(folder, UGLY_TEXTS), [list(text.encode()) for text in UGLY_TEXTS])
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    theirs = bytes(greedy_text(model, tokenizer, "round ", 10))
    for path in (folder, folder + "/model.safetensors"):
      ours = run([BINARIES["psctl"], "generate", "--model=" + path, "--prompt=round ",
                  "--temperature=0", "--bytes=10"])
      self.assertEqual(ours, theirs + b"\n")


class ImportTest(HuggingFaceTestCase):

  def test_models_of_theirs_give_the_same_logits_here(self):
    for number, (config, save) in enumerate([
        ({}, {}), ({}, {"max_shard_size": "20KB"}), ({"n_head": 1, "n_layer": 1}, {}),
        ({"n_head": 8, "n_embd": 40, "vocab_size": 257, "n_positions": 7}, {})]):
      model = random_gpt2(number, **config)
      folder = self.path(f"theirs-{number}")
      model.save_pretrained(folder, **save)
      self.assert_same_logits(folder, model)

  def test_files_without_the_prefix_and_with_masks_and_head_are_read(self):
    model = random_gpt2()
    folder = self.path("theirs")
    model.save_pretrained(folder)
    tensors = safetensors.numpy.load_file(folder + "/model.safetensors")
    self.assertTrue(all(name.startswith("transformer.") for name in tensors))
    tensors = {name.removeprefix("transformer."): values for name, values in tensors.items()}
    tensors["lm_head.weight"] = tensors["wte.weight"]
    tensors["h.0.attn.bias"] = numpy.tril(numpy.ones((1, 1, 24, 24), numpy.uint8))
    tensors["h.0.attn.masked_bias"] = numpy.array(-1e4, numpy.float32)
    safetensors.numpy.save_file(tensors, folder + "/model.safetensors", {"format": "pt"})
    self.assert_same_logits(folder, model)

  def test_what_is_no_model_of_ours_is_refused_by_name(self):
    for config, named in (({"activation_function": "relu"}, "activation_function"),
                          ({"tie_word_embeddings": False}, "tie_word_embeddings"),
                          ({"layer_norm_epsilon": 1e-6}, "layer_norm_epsilon")):
      folder = self.path("theirs-" + named)
      random_gpt2(**config).save_pretrained(folder)
      with self.assertRaisesRegex(AssertionError, named):
        our_logits(folder, [1], 300)

  def test_a_job_begins_with_their_weights_and_gives_them_back(self):
    model = random_gpt2()
    theirs = self.path("theirs")
    model.save_pretrained(theirs)
    self.write("gpt.textproto", 'name: "imported" gpt { num_layers: 2 num_heads: 4 width: 32 '
                                "context: 24 vocabulary: 300 }")
    self.start_server(model=self.path("gpt.textproto"), init_from=theirs)
    ours = self.path("ours")
    exported = self.psctl("export", "--format=huggingface", ours)
    self.assertEqual(exported.returncode, 0, exported.stderr)
    before = safetensors.numpy.load_file(theirs + "/model.safetensors")
    after = safetensors.numpy.load_file(ours + "/model.safetensors")
    self.assertEqual({"transformer." + name for name in after}, set(before))
    for name, values in after.items():
      numpy.testing.assert_array_equal(values, before["transformer." + name], name)
    self.assert_same_logits(ours, transformers.AutoModelForCausalLM.from_pretrained(ours).eval())

  def test_another_model_is_refused_by_tensor(self):
    theirs = self.path("theirs")
    random_gpt2().save_pretrained(theirs)
    code, log = self.run_server(model=self.path("model.textproto"), init_from=theirs)
    self.assertNotEqual(code, 0)
    self.assertIn(theirs, log)


class TokenizerTest(HuggingFaceTestCase):

  def train(self):
    """A tokenizer as GPT-2's, in a folder with tokenizer.json and in one with vocab.json and merges.txt."""
    words = random.Random(3)
    letters = "abcdefghijklmnopqrst\u00e9\u00e8\u00fc\u6f22\u5b57\u0430\u0431\u0432 '!?.,0123456789\n"
    corpus = ["".join(words.choices(letters, k=400)) for _ in range(200)] + UGLY_TEXTS * 5
    trained = tokenizers.ByteLevelBPETokenizer()
    trained.train_from_iterator(corpus, vocab_size=1500, special_tokens=["<|endoftext|>"],
                                show_progress=False)
    old = self.path("old")
    os.mkdir(old)
    trained.save_model(old)
    new = self.path("new")
    transformers.GPT2TokenizerFast.from_pretrained(old).save_pretrained(new)
    self.assertTrue(os.path.exists(new + "/tokenizer.json"))
    for name in ("vocab.json", "merges.txt"):
      if os.path.exists(os.path.join(new, name)):
        os.remove(os.path.join(new, name))
    return old, new

  def texts(self):
    pieces = ["'s", "'ll", "'", " ", "  ", "\n", "\t", "\u00a0", "\u3000", "a", "Z", "\u00e9",
              "e\u0301", "\u6f22", "1", "\u00b2", "!", "...", "\U0001f600", "\u200d", "<|endoftext|>",
              "\u0430", "\u0663", "\x85", "\x1c"]
    draw = random.Random(4)
    texts = UGLY_TEXTS + ["".join(draw.choices(pieces, k=draw.randrange(40))) for _ in range(3000)]
    characters = [chr(code) for code in range(0x110000) if not 0xd800 <= code < 0xe000]
    for begin in range(0, len(characters), 256):
      texts.append("".join(f"a{c}1{c} {c}" for c in characters[begin:begin + 256]))
    return texts

  def test_tokens_are_theirs_for_every_character(self):
    texts = self.texts()
    for folder in self.train():
      tokenizer = transformers.GPT2TokenizerFast.from_pretrained(folder)
      theirs = tokenizer(texts)["input_ids"]
      for text, ours, wanted in zip(texts, our_tokens(folder, texts), theirs, strict=True):
        self.assertEqual(ours, wanted, ascii(text[:100]))

  def test_text_is_continued_with_their_tokens(self):
    folder = self.train()[1]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = random_gpt2(vocab_size=len(tokenizer), n_positions=64)
    model.save_pretrained(folder)
    prompt = "caf\u00e9 12!"
    text = b""
    for token in greedy_text(model, tokenizer, prompt, 20):
      text += "".join(tokenizer.convert_ids_to_tokens([token])).translate(
          self.byte_of_letter()).encode("latin-1")
    ours = run([BINARIES["psctl"], "generate", "--model=" + folder, "--prompt=" + prompt,
                "--temperature=0", f"--bytes={len(text) - len(prompt.encode())}"])
    self.assertEqual(ours, text + b"\n")

  @staticmethod
  def byte_of_letter():
    printing = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
    others = [byte for byte in range(256) if byte not in printing]
    return {256 + i: byte for i, byte in enumerate(others)}


if __name__ == "__main__":
  BINARIES["model_probe"] = os.path.abspath(sys.argv.pop(4))
  cluster_processes.main()
