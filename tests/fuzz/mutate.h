// Mutants of an input without libFuzzer: the same ones for the same seed, on every machine.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>

namespace tutti::fuzz {

/// Changes `input` in one to four places: bits, bytes, numbers in digits and in binary, pieces that
/// are cut out, doubled, moved, or come from one of `others`. It stays at most `most` bytes long.
void mutate(std::string& input, std::span<const std::string> others, std::mt19937& random,
            std::size_t most = 65536);

}  // namespace tutti::fuzz
