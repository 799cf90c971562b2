// Stage 4 in plain JavaScript, for a Web Worker. It uses PyTorch's names, draws the same
// random numbers in the same order, and stores float32.

class Generator {  // mt19937, the Mersenne Twister
  manual_seed(seed) {
    this.state = new Uint32Array(624);
    this.state[0] = seed;
    for (let j = 1; j < 624; j++) {
      const last = this.state[j - 1];
      this.state[j] = Math.imul(1812433253, last ^ (last >>> 30)) + j;
    }
    this.used = 624;
    return this;
  }

  random() {  // a 32-bit integer
    const s = this.state;
    for (let i = 0; this.used === 624 && i < 624; i++) {
      const mixed = (s[i] & 0x80000000) | (s[(i + 1) % 624] & 0x7fffffff);
      s[i] = s[(i + 397) % 624] ^ (mixed >>> 1) ^ (mixed & 1 ? 0x9908b0df : 0);
    }
    this.used %= 624;
    let y = s[this.used++];
    y ^= y >>> 11;
    y ^= (y << 7) & 0x9d2c5680;
    y ^= (y << 15) & 0xefc60000;
    return (y ^ (y >>> 18)) >>> 0;
  }
}

function uniform_(tensor, from, to, generator) {
  const low = Math.fround(from);
  const range = Math.fround(Math.fround(to) - low);
  for (let i = 0; i < tensor.length; i++) {
    const x = (generator.random() & 0xffffff) / 2 ** 24;
    tensor[i] = Math.fround(x * range) + low;
  }
}

function randperm(n, generator) {
  const order = Array.from({ length: n }, (_, i) => i);
  for (let i = 0; i < n - 1; i++) {
    const j = i + (generator.random() % (n - i));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

// A rank's images in an epoch, without padding, because W divides the 4,000 images.
function DistributedSampler(size, num_replicas, rank, seed) {
  const order = randperm(size, new Generator().manual_seed(seed));
  return order.filter((_, i) => i % num_replicas === rank);
}

class Linear {  // a batch is a list of rows
  constructor(inputs, outputs, generator) {
    const bound = 1 / Math.sqrt(inputs);  // kaiming_uniform_ with a = sqrt(5)
    const drawn = new Float32Array(inputs * outputs);
    uniform_(drawn, -bound, bound, generator);
    // inputs x outputs, transposed from PyTorch: the inner loops run along rows
    this.weight = new Float32Array(inputs * outputs);
    for (let o = 0; o < outputs; o++)
      for (let i = 0; i < inputs; i++)
        this.weight[i * outputs + o] = drawn[o * inputs + i];
    this.bias = new Float32Array(outputs);
    uniform_(this.bias, -bound, bound, generator);
  }

  forward(batch) {
    const { weight, bias } = this;
    return batch.map((input) => {
      const output = bias.slice();
      for (let i = 0; i < input.length; i++) {
        const x = input[i];
        if (x === 0) continue;  // four of five pixels, and ReLU's zeros
        const at = i * output.length;
        for (let o = 0; o < output.length; o++) output[o] += x * weight[at + o];
      }
      return output;
    });
  }

  backward(batch, output_grads) {  // adds to the gradients, returns the batch's
    const { weight, bias } = this;
    const weight_grad = weight.grad;
    return batch.map((input, n) => {
      const output_grad = output_grads[n];
      const input_grad = new Float32Array(input.length);
      for (let o = 0; o < output_grad.length; o++) bias.grad[o] += output_grad[o];
      for (let i = 0; i < input.length; i++) {
        const x = input[i];
        if (x === 0) continue;  // no gradient passes a ReLU that returned 0
        const at = i * output_grad.length;
        let sum = 0;
        for (let o = 0; o < output_grad.length; o++) {
          weight_grad[at + o] += x * output_grad[o];
          sum += weight[at + o] * output_grad[o];
        }
        input_grad[i] = sum;
      }
      return input_grad;
    });
  }
}

function cross_entropy(logits, labels) {  // the mean over a batch, and its gradient
  let sum = 0;
  const grads = logits.map((row, n) => {
    const total = row.reduce((powers, logit) => powers + Math.exp(logit), 0);
    const grad = row.map((logit) => Math.exp(logit) / total / labels.length);
    grad[labels[n]] -= 1 / labels.length;
    sum += Math.log(total) - row[labels[n]];
    return grad;
  });
  return [Math.fround(sum / labels.length), grads];
}

class Net {
  constructor(hidden, seed) {
    const generator = new Generator().manual_seed(seed);
    this.one = new Linear(784, hidden, generator);
    this.two = new Linear(hidden, 10, generator);
    this.parameters = [this.one.weight, this.one.bias, this.two.weight, this.two.bias];
    for (const tensor of this.parameters) tensor.grad = new Float32Array(tensor.length);
  }

  forward(images) {
    this.images = images;
    const hidden = this.one.forward(images);
    this.active = hidden.map((row) => row.map((x) => Math.max(x, 0)));  // ReLU
    return this.two.forward(this.active);
  }

  backward(grads) {
    this.one.backward(this.images, this.two.backward(this.active, grads));
  }
}

function SGD_step(model, lr) {
  for (const parameter of model.parameters)
    for (let i = 0; i < parameter.length; i++) parameter[i] -= lr * parameter.grad[i];
}

function all_reduce(tensors, divisor) {  // every tensor becomes the sum / divisor
  const sum = tensors[0].slice();
  for (const tensor of tensors.slice(1))
    for (let i = 0; i < sum.length; i++) sum[i] += tensor[i];
  for (let i = 0; i < sum.length; i++) sum[i] /= divisor;
  for (const tensor of tensors) tensor.set(sum);
}

function train_step(model, { images, labels }, indices) {  // without the optimizer's
  const logits = model.forward(indices.map((index) => images[index]));
  const [loss, grads] = cross_entropy(logits, indices.map((index) => labels[index]));
  for (const parameter of model.parameters) parameter.grad.fill(0);
  model.backward(grads);
  return loss;
}

function distance([first, ...others]) {  // the largest between two ranks' weights
  let most = 0;
  for (const other of others)
    for (const [k, tensor] of other.parameters.entries())
      for (let i = 0; i < tensor.length; i++)
        most = Math.max(most, Math.abs(tensor[i] - first.parameters[k][i]));
  return most;
}

function evaluate(model, { images, labels }) {  // correct and total
  const is_right = (logits, n) => logits.indexOf(Math.max(...logits)) === labels[n];
  return [model.forward(images).filter(is_right).length, labels.length];
}

// Posts the results of each step and each epoch. `off` are the mistakes turned on.
function main({ ranks, batch_size, lr, hidden, epochs, off }, train, test) {
  const every = [...Array(ranks).keys()];
  const models = every.map((rank) => new Net(hidden, off.includes("seed") ? rank : 0));
  if (!off.includes("ddp") && !off.includes("init_sync"))  // DDP's broadcast
    for (const model of models)
      model.parameters.forEach((tensor, k) => tensor.set(models[0].parameters[k]));
  const share = off.includes("batch_size") ? batch_size : batch_size / ranks;
  for (let epoch = 1; epoch <= epochs; epoch++) {
    const replicas = off.includes("sampler") ? 1 : ranks;
    const seed = off.includes("set_epoch") ? 0 : epoch;
    const orders = every.map((rank) =>
      DistributedSampler(train.labels.length, replicas, rank % replicas, seed));
    const totals = every.map(() => new Float64Array(2));  // loss_sum and count
    const length = orders[0].length;
    for (let start = 0; start < length; start += share) {
      const indices = orders.map((order) => order.slice(start, start + share));
      const losses = models.map((model, r) => train_step(model, train, indices[r]));
      const before = models.map((model) => model.two.bias.grad.slice());
      if (!off.includes("ddp"))
        for (const k of models[0].parameters.keys())
          all_reduce(models.map((model) => model.parameters[k].grad), ranks);
      const after = models.map((model) => model.two.bias.grad.slice());
      for (const model of models) SGD_step(model, lr);
      for (const r of every) totals[r][0] += losses[r] * indices[r].length;
      for (const r of every) totals[r][1] += indices[r].length;
      const at = epoch - 1 + (start + indices[0].length) / length;
      const biases = models.map((model) => model.two.bias.slice());
      const apart = distance(models);
      postMessage({ at, losses, indices, before, after, biases, apart });
    }
    if (!off.includes("all_reduce")) all_reduce(totals, 1);
    const [loss_sum, count] = totals[0];
    postMessage({ row: [loss_sum / count, ...evaluate(models[0], test)] });
  }
}

onmessage = ({ data }) => main(data.settings, data.train, data.test);
