#include "portable/kept.h"

#include <cstdio>
#include <mutex>
#include <sstream>

#include "causeway/program_cache.hpp"

namespace causeway::portable {

std::vector<Kept> read_kept(const std::string& folder, const std::string& key) {
  const ProgramCache::Binary text = ProgramCache(folder).find(key);
  std::istringstream file(std::string(text.begin(), text.end()));
  std::vector<Kept> lines;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Kept k;
    std::string gain;
    if (!std::getline(words, k.name, '\t') || !std::getline(words, k.cut, '\t') ||
        !std::getline(words, k.probe, '\t') || !std::getline(words, gain))
      continue;
    // What is no number is no gain. NOLINTNEXTLINE(bugprone-unchecked-string-to-number-conversion)
    k.gain = atof(gain.c_str());
    lines.push_back(k);
  }
  return lines;
}

bool write_kept(const std::string& folder, const std::string& key, const Kept& line) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  std::vector<Kept> lines = read_kept(folder, key);
  bool found = false;
  for (Kept& k : lines)
    if (k.name == line.name) k = line, found = true;
  if (!found) lines.push_back(line);
  std::string text;
  for (const Kept& k : lines) {
    char gain[32];
    snprintf(gain, sizeof gain, "%.3f", k.gain);
    text += k.name + "\t" + k.cut + "\t" + k.probe + "\t" + gain + "\n";
  }
  return ProgramCache(folder).keep(key, {text.begin(), text.end()});
}

}  // namespace causeway::portable
