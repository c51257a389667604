// Writes the types of the fleet API from its OpenAPI document. With --check it
// compares them with the committed file instead.
import { readFile, writeFile } from 'node:fs/promises'
import openapiTS, { astToString } from 'openapi-typescript'

const source = new URL('../../api/fleet/v1/openapi.yaml', import.meta.url)
const target = new URL('../../client/typescript/fleet.gen.ts', import.meta.url)
const header = "// Generated from api/fleet/v1/openapi.yaml by 'npm run generate' in console/.\n\n"

const text = header + astToString(await openapiTS(source, { alphabetize: false }))
if (!process.argv.includes('--check')) {
  await writeFile(target, text)
} else if ((await readFile(target, 'utf8')) !== text) {
  console.error("client/typescript/fleet.gen.ts is out of date: run 'npm run generate' in console/ and commit the result")
  process.exit(1)
}
