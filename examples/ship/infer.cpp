// Digits from a model file, in C++:
//
//   c++ -std=c++17 -O2 -I include infer.cpp -L lib -lcw_run -Wl,-rpath,lib -o infer
//   ./infer libcw_sim.so digits.cw images.bin
#include <algorithm>
#include <causeway/run.hpp>
#include <fstream>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc != 4) throw std::runtime_error("usage: infer VENDOR-LIBRARY MODEL IMAGES");
  std::ifstream images(argv[3], std::ios::binary);
  if (!images) throw std::runtime_error("the images cannot be read");
  // The simulated chip's kernels are C that is built here: the flag says that the file is our own.
  cw::run::Model model(cw::run::Device(argv[1]), argv[2], CW_RUN_ALLOW_HOST_CODE);
  cw::run::Session session(model);

  std::vector<float> pixels(model.inputs().at(0).bytes / sizeof(float));
  const std::int64_t columns = model.outputs().at(0).shape[1];
  const auto bytes = static_cast<std::streamsize>(pixels.size() * sizeof(float));
  while (images.read(reinterpret_cast<char*>(pixels.data()), bytes)) {
    session.set("image", pixels);
    session.run();
    const std::vector<float> scores = session.get<float>("output");
    for (auto row = scores.begin(); row != scores.end(); row += columns)
      std::cout << std::max_element(row, row + columns) - row;
    std::cout << "\n";
  }
} catch (const std::exception& error) {
  std::cerr << "infer: " << error.what() << "\n";
  return 1;
}
